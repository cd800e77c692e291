package renew

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
	"pgregory.net/rapid"
)

// scene is one random history of a service.
type scene struct {
	ttl, grace time.Duration
	replies    []reply
	rest       reply
}

func drawReply(t *rapid.T) reply {
	r := reply{
		after: time.Duration(rapid.IntRange(0, 20_000).Draw(t, "after ms")) * ms,
		deaf:  rapid.Bool().Draw(t, "deaf"),
		hangs: rapid.IntRange(0, 4).Draw(t, "hangs") == 0,
	}
	switch rapid.IntRange(0, 9).Draw(t, "outcome") {
	case 0, 1, 2, 3:
		r.err = errDown
	case 4:
		r.ttl = time.Duration(rapid.IntRange(1, 60).Draw(t, "ttl s")) * time.Second
	case 5:
		r.err = rapid.SampledFrom([]error{errDown, backend.ErrLost, backend.ErrRevoked}).Draw(t, "no")
	}
	if rapid.Bool().Draw(t, "fast") {
		r.after %= 100 * ms
	}
	return r
}

// drawScene makes no two answers come at the same nanosecond.
func drawScene(t *rapid.T) scene {
	c := scene{
		ttl:     time.Duration(rapid.IntRange(1, 60).Draw(t, "ttl s")) * time.Second,
		grace:   time.Duration(rapid.IntRange(0, 30).Draw(t, "grace s")) * time.Second,
		replies: rapid.SliceOfN(rapid.Custom(drawReply), 0, 12).Draw(t, "replies"),
		rest:    drawReply(t),
	}
	for i := range c.replies {
		c.replies[i].after += time.Duration(i + 1)
	}
	return c
}

// play runs the scene for ten minutes, and says what is wrong with it.
func play(t *testing.T, c scene) (err error) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(c.ttl, c.replies...)
		s.rest = c.rest
		k := s.keep(t, s.config(c.grace))
		select {
		case loss := <-k.Lost():
			err = s.checkLoss(c, loss, s.now())
		case <-time.After(10 * time.Minute):
			if best := s.best(s.now()); s.now() > best.StopAt(c.grace) {
				err = fmt.Errorf("not lost at %v, though %+v has run out", s.now().Sub(s.began), best)
			}
		}
		if most := s.saw().most; most > maxTries {
			err = errors.Join(err, fmt.Errorf("%d renewals in flight", most))
		}
	})
	return err
}

// best is the lease that ends last among those confirmed before now.
func (s *script) best(now boottime.Instant) backend.Lease {
	granted := s.saw().granted
	best := granted[0].lease
	for _, g := range granted {
		if g.at < now && g.lease.Deadline() > best.Deadline() {
			best = g.lease
		}
	}
	return best
}

// checkLoss: out of time is at the stop of the best lease confirmed, to the nanosecond;
// before that there is only a no; and the kill is never late.
func (s *script) checkLoss(c scene, loss Loss, now boottime.Instant) error {
	best := s.best(now)
	late := errors.Is(loss.Err, ErrLate)
	switch stop := best.StopAt(c.grace); {
	case now > stop:
		return fmt.Errorf("lost %v after the stop of %+v", now.Sub(stop), best)
	case late && now != stop:
		return fmt.Errorf("lost %v before the stop of %+v", stop.Sub(now), best)
	case !late && !errors.Is(loss.Err, backend.ErrLost) && !errors.Is(loss.Err, backend.ErrRevoked):
		return fmt.Errorf("lost by %w", loss.Err)
	case loss.Kill < now || loss.Kill > best.KillAt():
		return fmt.Errorf("kill at %v, want it from %v to %v", loss.Kill, now, best.KillAt())
	case loss.Kill.Sub(now) > best.ShortGrace(c.grace):
		return fmt.Errorf("kill after %v, more than the grace", loss.Kill.Sub(now))
	case loss.End != best.Deadline():
		return fmt.Errorf("end at %v, want %v", loss.End, best.Deadline())
	}
	return nil
}

func TestAnyScene(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := drawScene(rt)
		if err := play(t, c); err != nil {
			rt.Fatal(err)
		}
	})
}
