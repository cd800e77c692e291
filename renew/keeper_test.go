package renew

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock/dlock/backend"
)

var errDown = fmt.Errorf("dial: %w", backend.ErrUnavailable)

// A lease of 30 s sent at 0 with a grace of 5 s: renewals from 10 s on, SIGTERM at
// 24.1 s, SIGKILL at 29.1 s, end at 29.7 s.
const (
	ttl   = 30 * time.Second
	grace = 5 * time.Second
	stop  = 24100 * ms
	kill  = 29100 * ms
	end   = 29700 * ms
)

// wantLoss fails the test unless the loss is as told; kill and end are after the beginning.
func (s *script) wantLoss(t *testing.T, loss Loss, want error, kill, end time.Duration) {
	t.Helper()
	if !errors.Is(loss.Err, want) {
		t.Errorf("lost by %v, want %v", loss.Err, want)
	}
	if got := loss.Kill.Sub(s.began); got != kill {
		t.Errorf("to be killed at %v, want %v", got, kill)
	}
	if got := loss.End.Sub(s.began); got != end {
		t.Errorf("ends at %v, want %v", got, end)
	}
}

func (s *script) wantErrs(t *testing.T, want ...error) {
	t.Helper()
	if !slices.EqualFunc(s.saw().errs, want, func(got, want error) bool { return errors.Is(got, want) }) {
		t.Errorf("reported %v, want %v", s.saw().errs, want)
	}
}

func TestRenewsEachThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		s.rest = reply{after: 7 * ms}
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 10*time.Minute+ms)
		var want []time.Duration
		for at := 10 * time.Second; at <= 10*time.Minute; at += 10 * time.Second {
			want = append(want, at)
		}
		if !slices.Equal(s.saw().asked, want) {
			t.Errorf("renewed at %v", s.saw().asked)
		}
		if len(s.saw().leases) != 59 || s.saw().leases[58].Sent != s.at(590*time.Second) {
			t.Errorf("told of %d leases, want the 59 answered so far", len(s.saw().leases))
		}
		if got := k.Lease(); got != s.saw().leases[58] {
			t.Errorf("holds %+v, want the last lease told", got)
		}
		s.wantErrs(t)
	})
}

func TestServiceDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		s.rest = reply{err: errDown}
		k := s.keep(t, s.config(grace))
		loss, at := s.lost(t, k, time.Minute)
		if at != stop {
			t.Errorf("lost after %v, want %v", at, stop)
		}
		s.wantLoss(t, loss, ErrLate, kill, end)
		if !errors.Is(loss.Err, errDown) {
			t.Errorf("%v does not say why", loss.Err)
		}
		s.wantErrs(t, errDown)
		want := []time.Duration{10000 * ms, 10050 * ms, 10150 * ms, 10350 * ms, 10750 * ms, 11550 * ms, 12550 * ms}
		if n := len(want); len(s.saw().asked) < n || !slices.Equal(s.saw().asked[:n], want) {
			t.Errorf("tried at %v", s.saw().asked)
		}
		if last := s.saw().asked[len(s.saw().asked)-1]; last < stop-lastPause || last >= stop {
			t.Errorf("tried last at %v", last)
		}
		s.kept(t, k, time.Minute) // once, and no more renewals
		if last := s.saw().asked[len(s.saw().asked)-1]; last >= stop {
			t.Errorf("tried at %v, after the loss", last)
		}
	})
}

func TestShortLeasesAreRetriedFaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(1200 * ms)
		s.rest = reply{err: errDown}
		k := s.keep(t, s.config(0))
		s.lost(t, k, time.Minute)
		want := []time.Duration{400 * ms, 450 * ms, 550 * ms, 650 * ms, 750 * ms, 850 * ms}
		if got := s.saw().asked; !slices.Equal(got, want) {
			t.Errorf("tried at %v, want %v", got, want)
		}
	})
}

func TestErrorsUntilJustBeforeTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		s.rest = reply{err: errDown}
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 23*time.Second)
		s.then(reply{after: 7 * ms})
		s.kept(t, k, time.Minute)
		s.wantErrs(t, errDown, nil)
	})
}

func TestOneErrorARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := errors.New("another")
		down, odd, up := reply{err: errDown}, reply{err: other}, reply{}
		s := newScript(ttl, down, odd, down, up, up, odd, down, up)
		k := s.keep(t, s.config(grace))
		s.kept(t, k, time.Minute)
		s.wantErrs(t, errDown, nil, other, nil)
		want := []time.Duration{ // the pauses start anew with each row
			10000 * ms, 10050 * ms, 10150 * ms, 10350 * ms,
			20350 * ms,
			30350 * ms, 30400 * ms, 30500 * ms,
			40500 * ms,
		}
		if got := s.saw().asked; !slices.Equal(got[:len(want)], want) {
			t.Errorf("tried at %v, want %v", got, want)
		}
	})
}

func TestHungRenewal(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(ttl, reply{hangs: true, deaf: deaf})
			s.rest = reply{after: 7 * ms}
			k := s.keep(t, s.config(grace))
			s.kept(t, k, time.Minute)
			want := []time.Duration{10000 * ms, 20050 * ms, 30050 * ms}
			if !slices.Equal(s.saw().asked[:3], want) {
				t.Errorf("deaf %v: tried at %v, want %v", deaf, s.saw().asked, want)
			}
			if len(s.saw().errs) != 2 || s.saw().errs[0] == nil || s.saw().errs[1] != nil {
				t.Errorf("deaf %v: reported %v", deaf, s.saw().errs)
			}
		})
	}
}

func TestNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		s.every = 2 * time.Second
		s.rest = reply{hangs: true, deaf: true}
		k := s.keep(t, s.config(grace))
		loss, at := s.lost(t, k, time.Minute)
		if at != stop {
			t.Errorf("lost after %v, want %v", at, stop)
		}
		s.wantLoss(t, loss, ErrLate, kill, end)
		if len(s.saw().errs) != 1 {
			t.Errorf("reported %v", s.saw().errs)
		}
		if got := s.saw(); got.most != maxTries || len(got.asked) != maxTries {
			t.Errorf("tried at %v, want no more than %d in flight", got.asked, maxTries)
		}
	})
}

// TestSilenceDoesNotHideTheCause: what the service has said tells more than that it says
// nothing any more.
func TestSilenceDoesNotHideTheCause(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(ttl, reply{hangs: true, deaf: deaf}, reply{err: errDown})
			s.rest = reply{hangs: true, deaf: deaf}
			loss, _ := s.lost(t, s.keep(t, s.config(grace)), time.Minute)
			if !errors.Is(loss.Err, errDown) {
				t.Errorf("deaf %v: lost by %v, want %v", deaf, loss.Err, errDown)
			}
		})
	}
}

func TestFewInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(0)
		s.rest = reply{hangs: true, deaf: true}
		k := s.endless(s.config(grace))
		s.kept(t, k, time.Hour)
		if s.saw().most != maxTries || len(s.saw().asked) != maxTries {
			t.Errorf("%d renewals in flight, %d in all; want %d", s.saw().most, len(s.saw().asked), maxTries)
		}
		s.then(reply{})
		close(s.thaw)
		s.kept(t, k, time.Minute)
		if n := len(s.saw().asked) - maxTries; n < 59 || n > 61 {
			t.Errorf("%d renewals in the minute after, want one a second", n)
		}
		k.Stop()
	})
}

func TestLateSuccessCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The first renewal takes 12 s, 2 s longer than it has; all others hang.
		s := newScript(ttl, reply{after: 12 * time.Second, deaf: true})
		s.rest = reply{hangs: true, deaf: true}
		k := s.keep(t, s.config(grace))
		loss, at := s.lost(t, k, time.Minute)
		const shift = 10 * time.Second // sent then
		if at != stop+shift {
			t.Errorf("lost after %v, want %v", at, stop+shift)
		}
		s.wantLoss(t, loss, ErrLate, kill+shift, end+shift)
		if len(s.saw().leases) != 1 {
			t.Errorf("told of the leases %+v, want one", s.saw().leases)
		}
	})
}

func TestLateSuccessDoesNotShorten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The first renewal comes through after the second.
		s := newScript(ttl, reply{after: 14 * time.Second, deaf: true})
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 25*time.Second)
		if got := k.Lease(); got.Sent != s.at(20050*ms) || len(s.saw().leases) != 1 {
			t.Errorf("holds %+v after the leases %+v", got, s.saw().leases)
		}
		if len(s.saw().asked) != 2 {
			t.Errorf("tried at %v, want no more than twice", s.saw().asked)
		}
	})
}

func TestLateAnswersThatDecideNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl, reply{after: 14 * time.Second, deaf: true, err: errDown})
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 29*time.Second)
		if len(s.saw().errs) != 2 || len(s.saw().asked) != 2 {
			t.Errorf("reported %v, tried at %v", s.saw().errs, s.saw().asked)
		}
	})
}

func TestNotOurs(t *testing.T) {
	for _, want := range []error{backend.ErrLost, backend.ErrRevoked} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(ttl, reply{after: 7 * ms, err: fmt.Errorf("redis: %w", want)})
			k := s.keep(t, s.config(grace))
			loss, at := s.lost(t, k, time.Minute)
			if at != 10007*ms {
				t.Errorf("lost after %v", at)
			}
			s.wantLoss(t, loss, want, 15007*ms, end)
			if errors.Is(loss.Err, ErrLate) {
				t.Errorf("%v claims to be late", loss.Err)
			}
			s.wantErrs(t)
		})
	}
}

func TestLateNoIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl, reply{after: 12 * time.Second, deaf: true, err: backend.ErrLost})
		s.rest = reply{hangs: true}
		k := s.keep(t, s.config(grace))
		loss, at := s.lost(t, k, time.Minute)
		if at != 22*time.Second {
			t.Errorf("lost after %v, want 22s", at)
		}
		s.wantLoss(t, loss, backend.ErrLost, 27*time.Second, end)
	})
}

func TestNotOursLateInTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The grace is cut to a third of the lease, and to the kill of the lease.
		reports := make(chan error, 1)
		s := newScript(ttl)
		s.rest = reply{hangs: true}
		cfg := s.config(time.Hour)
		cfg.Lost = reports
		k := s.keep(t, cfg)
		s.kept(t, k, 19500*ms)
		reports <- backend.ErrRevoked
		loss, at := s.lost(t, k, ms)
		if at != 19500*ms {
			t.Errorf("lost after %v", at)
		}
		s.wantLoss(t, loss, backend.ErrRevoked, kill, end)
		if s.kept(t, k, 0); s.saw().inFlight != 0 {
			t.Error("a renewal hangs on after the loss")
		}
	})
}

func TestServiceReportsTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := make(chan error, 1)
		s := newScript(ttl)
		cfg := s.config(grace)
		cfg.Lost = reports
		k := s.keep(t, cfg)
		s.kept(t, k, 3*time.Second)
		reports <- backend.ErrLost
		loss, at := s.lost(t, k, ms)
		if at != 3*time.Second {
			t.Errorf("lost after %v", at)
		}
		s.wantLoss(t, loss, backend.ErrLost, 8*time.Second, end)
	})
}

func TestReportsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := make(chan error)
		close(reports)
		s := newScript(ttl)
		cfg := s.config(grace)
		cfg.Lost = reports
		s.kept(t, s.keep(t, cfg), time.Minute)
	})
}

func TestShorterLeaseTakesEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		s.rest = reply{ttl: 24 * time.Second}
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 35*time.Second)
		want := []time.Duration{10 * time.Second, 18 * time.Second, 26 * time.Second, 34 * time.Second}
		if !slices.Equal(s.saw().asked, want) {
			t.Errorf("renewed at %v, want %v", s.saw().asked, want)
		}
		if got := k.Lease(); got.TTL != 24*time.Second {
			t.Errorf("holds %+v", got)
		}
	})
}

func TestMuchShorterLeaseWaitsForTheLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Leases of 6 s do not reach the end of the first one until it is near.
		s := newScript(ttl)
		s.rest = reply{ttl: 6 * time.Second}
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 23*time.Second)
		if got := k.Lease(); got.Sent != s.began {
			t.Errorf("shortened to %+v", got)
		}
		want := []time.Duration{10 * time.Second, 12 * time.Second, 14 * time.Second, 16 * time.Second}
		if !slices.Equal(s.saw().asked[:4], want) {
			t.Errorf("renewed at %v, want %v", s.saw().asked, want)
		}
		s.kept(t, k, time.Minute)
	})
}

func TestMachineSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 500*ms)
		s.sleep(time.Hour)
		loss, at := s.lost(t, k, longestNap)
		s.wantLoss(t, loss, ErrLate, at, end)
		if at < time.Hour || len(s.saw().asked) != 0 {
			t.Errorf("lost after %v, %d renewals before the kill", at, len(s.saw().asked))
		}
	})
}

func TestMachineSleepsDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The renewal succeeds, but nobody knew when it was time to kill.
		s := newScript(ttl, reply{after: 500 * ms})
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 10400*ms)
		s.sleep(time.Hour)
		loss, at := s.lost(t, k, 200*ms)
		s.wantLoss(t, loss, ErrLate, at, end)
		if got := k.Stop(); got.Sent != s.began {
			t.Errorf("holds %+v after the loss", got)
		}
	})
}

func TestShortSleepIsSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		k := s.keep(t, s.config(grace))
		s.kept(t, k, time.Second)
		s.sleep(20 * time.Second)
		s.kept(t, k, time.Minute)
		if first := s.saw().asked[0]; first > 22*time.Second {
			t.Errorf("renewed first at %v", first)
		}
	})
}

func TestSleepPastTheStopDuringARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// It succeeds before it is time to kill: the lease stands.
		s := newScript(ttl, reply{after: 500 * ms})
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 10400*ms)
		s.sleep(16 * time.Second)
		s.kept(t, k, time.Minute)
	})
}

func TestAnswersAreHeardBeforeTheStop(t *testing.T) {
	// Whichever woke the keeper: an answer that is there counts, up to the kill.
	s := newScript(ttl)
	yes := answer{lease: backend.Lease{Sent: s.at(20 * time.Second), TTL: ttl}}
	no := answer{err: errDown}
	for now, lost := range map[time.Duration]bool{stop: false, kill: true} {
		for name, e := range map[string]event{"clock": {}, "answer": {answer: &no}} {
			k := &Keeper{cfg: s.config(grace).withDefaults()}
			l := backend.Lease{Sent: s.began, TTL: ttl}
			k.lease.Store(&l)
			k.tries = newTries(l)
			k.tries.answers <- yes
			if loss := k.judge(s.at(now), e); (loss != nil) != lost {
				t.Errorf("woken by the %s after %v: %+v, want a loss: %v", name, now, loss, lost)
			}
		}
	}
}

func TestSleepPastTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 500*ms)
		s.sleep(26 * time.Second) // between SIGTERM and SIGKILL
		loss, _ := s.lost(t, k, longestNap)
		s.wantLoss(t, loss, ErrLate, kill, end)
	})
}

func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 100*ms)
		k.Check()
		s.kept(t, k, 0)
		s.sleep(time.Hour)
		k.Check()
		select {
		case loss := <-k.Lost():
			s.wantLoss(t, loss, ErrLate, time.Hour+100*ms, end)
		default:
			t.Error("nothing reported when Check returns")
		}
		k.Check()
	})
}

func TestCheckRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 100*ms)
		s.sleep(15 * time.Second)
		k.Check()
		s.kept(t, k, 0)
		if len(s.saw().asked) != 1 {
			t.Errorf("renewed at %v, want at once", s.saw().asked)
		}
	})
}

func TestLateOnArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		lease := s.lease()
		s.sleep(40 * time.Second)
		k := Keep(s, lease, s.config(grace))
		loss, at := s.lost(t, k, ms)
		if at != 40*time.Second {
			t.Errorf("lost after %v", at)
		}
		s.wantLoss(t, loss, ErrLate, 40*time.Second, end)
	})
}

func TestWithoutGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		s.rest = reply{err: errDown}
		k := s.keep(t, s.config(0))
		loss, at := s.lost(t, k, time.Minute)
		if at != kill {
			t.Errorf("lost after %v, want %v: the kill comes before the end", at, kill)
		}
		s.wantLoss(t, loss, ErrLate, kill, end)
	})
}

// endless is a hold without an end of its own, checked each second.
func (s *script) endless(cfg Config) *Keeper {
	s.every = time.Second
	return Keep(s, backend.Lease{Sent: s.now(), Every: s.every}, cfg)
}

func TestWithoutEndNeverLostByErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(0)
		s.rest = reply{err: errDown}
		k := s.endless(s.config(grace))
		s.kept(t, k, 3*time.Hour)
		s.wantErrs(t, errDown)
		s.then(reply{err: backend.ErrRevoked})
		loss, _ := s.lost(t, k, time.Minute)
		if want := s.now().Add(grace); loss.Kill != want || !loss.End.IsZero() || !errors.Is(loss.Err, backend.ErrRevoked) {
			t.Errorf("%+v, want a kill at %v and no end", loss, want)
		}
	})
}

func TestWithoutEndWithoutRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := make(chan error, 1)
		s := newScript(0)
		cfg := s.config(grace)
		cfg.Lost = reports
		k := Keep(s, backend.Lease{Sent: s.now()}, cfg)
		s.sleep(time.Hour)
		s.kept(t, k, time.Hour)
		if len(s.saw().asked) != 0 {
			t.Errorf("renewed at %v", s.saw().asked)
		}
		reports <- backend.ErrLost
		loss, at := s.lost(t, k, ms)
		if !errors.Is(loss.Err, backend.ErrLost) || loss.Kill != s.at(at+grace) || !loss.End.IsZero() {
			t.Errorf("lost after %v: %+v", at, loss)
		}
	})
}

func TestRenewalsMayCease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The service turns the lease into a hold without an end.
		s := newScript(0)
		k := Keep(s, backend.Lease{Sent: s.now(), TTL: ttl}, s.config(grace))
		s.kept(t, k, time.Hour)
		if len(s.saw().asked) != 1 || k.Lease().Ends() {
			t.Errorf("renewed at %v, holds %+v", s.saw().asked, k.Lease())
		}
		k.Stop()
	})
}

func TestEndDoesNotComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		k := s.endless(s.config(grace))
		s.kept(t, k, time.Minute)
		if k.Stop().Ends() {
			t.Error("a hold without an end was given one")
		}
	})
}

func TestNoPauseIsTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		s.rest = reply{ttl: 3} // nonsense: a lease of three nanoseconds
		k := s.keep(t, s.config(grace))
		s.lost(t, k, time.Minute)
		if n := len(s.saw().asked); n > int(stop/firstPause) {
			t.Errorf("%d renewals", n)
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		k := s.keep(t, s.config(grace))
		s.kept(t, k, 15*time.Second)
		for range 2 {
			if got := k.Stop(); got.Sent != s.at(10*time.Second) {
				t.Errorf("stopped with %+v", got)
			}
		}
		k.Check()
		s.kept(t, k, time.Hour)
		if len(s.saw().asked) != 1 {
			t.Errorf("renewed at %v, after Stop", s.saw().asked)
		}
	})
}

func TestStopDuringAHungRenewal(t *testing.T) {
	for _, r := range []reply{{hangs: true}, {hangs: true, deaf: true}, {after: time.Hour, deaf: true}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(ttl, r)
			k := s.keep(t, s.config(grace))
			s.kept(t, k, 12*time.Second)
			before := s.now()
			if got := k.Stop(); got.Sent != s.began {
				t.Errorf("stopped with %+v", got)
			}
			if waited := s.now().Sub(before); waited != 0 {
				t.Errorf("Stop took %v", waited)
			}
		})
	}
}

func TestTriesHaveTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(ttl)
		var got []time.Duration
		k := Keep(renewerFunc(func(ctx context.Context) (backend.Lease, error) {
			until, _ := ctx.Deadline()
			got = append(got, time.Until(until))
			<-ctx.Done()
			return backend.Lease{}, ctx.Err()
		}), s.lease(), s.config(grace))
		s.lost(t, k, time.Minute)
		synctest.Wait()
		if want := []time.Duration{10 * time.Second, stop - 20050*ms}; !slices.Equal(got, want) {
			t.Errorf("timeouts %v, want %v", got, want)
		}
	})
}

type renewerFunc func(context.Context) (backend.Lease, error)

func (f renewerFunc) Renew(ctx context.Context) (backend.Lease, error) { return f(ctx) }

func TestRealClock(t *testing.T) {
	k := Keep(renewerFunc(nil), backend.Lease{Sent: 1, TTL: time.Second}, Config{})
	if loss := <-k.Lost(); !errors.Is(loss.Err, ErrLate) {
		t.Errorf("lost by %v", loss.Err)
	}
	k.Stop()
}
