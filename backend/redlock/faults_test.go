package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/daemon"
	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/internal/boottime"
)

const lockKey = "dlock:{j}"

// use opens the service until the test ends.
func use(t testing.TB, addrs []string) *Backend {
	t.Helper()
	b := open(t, addrs, "", "dlock")
	t.Cleanup(func() { b.Close() })
	return b
}

// leaseOf is a wish for a lease of that length.
func leaseOf(ttl time.Duration) backend.Request {
	r := backendtest.Request("j", backendtest.Exclusive)
	r.TTL = ttl
	return r
}

func mustRenew(t testing.TB, h backend.Hold) {
	t.Helper()
	if _, err := h.Renew(t.Context()); err != nil {
		t.Errorf("renewal: %v", err)
	}
}

// tokens are what the servers have as the lock.
func (s servers) tokens(t testing.TB) (list []string) {
	t.Helper()
	for _, server := range s {
		list = append(list, server.Client().Get(t.Context(), lockKey).Val())
	}
	return list
}

// numbers are the last fences that the servers know.
func (s servers) numbers(t testing.TB) (list []string) {
	t.Helper()
	for _, server := range s {
		list = append(list, server.Client().HGet(t.Context(), lockKey+":m", "f").Val())
	}
	return list
}

// eventuallyFree waits until no server has the lock.
func (s servers) eventuallyFree(t testing.TB) {
	t.Helper()
	backendtest.Eventually(t, "no server has the lock", func() bool {
		return !slices.ContainsFunc(s.tokens(t), func(token string) bool { return token != "" })
	})
}

func (s servers) flush(t testing.TB, which ...int) {
	t.Helper()
	for _, i := range which {
		if err := s[i].Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// calls counts the scripts that a server was sent.
func calls(t testing.TB, s *redistest.Server) (n int) {
	t.Helper()
	info := s.Client().Info(t.Context(), "commandstats").Val()
	for _, command := range []string{"evalsha", "eval"} {
		if _, after, found := strings.Cut(info, "cmdstat_"+command+":calls="); found {
			var k int
			if _, err := fmt.Sscanf(after, "%d", &k); err != nil {
				t.Fatal(err)
			}
			n += k
		}
	}
	return n
}

// deadServers start two that do not work.
var deadServers = map[string]func(*testing.T) []string{
	"closed port": func(t *testing.T) []string {
		closed := func() string { return net.JoinHostPort("127.0.0.1", fmt.Sprint(daemon.FreePort(t))) }
		return []string{closed(), closed()}
	},
	"stopped": func(t *testing.T) (addrs []string) {
		for _, s := range start(t, 2) {
			s.Stop()
			t.Cleanup(s.Cont)
			addrs = append(addrs, s.Addr())
		}
		return addrs
	},
	"unresolvable": func(*testing.T) []string { return []string{"one.invalid:6379", "two.invalid:6379"} },
}

// TestTwoDeadOfFive: they cost nothing, are named once each, and the lock works. A server
// may take two seconds to answer, so the median would be more than a tenth of the TTL if
// anything waited for the dead; without that it is far below, also on a busy machine.
func TestTwoDeadOfFive(t *testing.T) {
	const ttl, rounds = 4 * requestLimit, 50
	for what, kill := range deadServers {
		t.Run(what, func(t *testing.T) {
			s := start(t, 3)
			dead := kill(t)
			addrs := append(slices.Clone(dead), s.addrs()...)
			took := map[string][]time.Duration{}
			timed := func(what string, do func() error) {
				began := time.Now()
				if err := do(); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
				took[what] = append(took[what], time.Since(began))
			}
			for range rounds { // each as a process of its own does it
				b := open(t, addrs, "", "dlock")
				var h backend.Hold
				timed("acquire", func() (err error) { h, err = b.Acquire(t.Context(), backendtest.NoWait(leaseOf(ttl))); return err })
				timed("renew", func() error { _, err := h.Renew(t.Context()); return err })
				timed("release", func() error { return h.Release(t.Context(), 0) })
				timed("close", b.Close)
			}
			for what, list := range took {
				slices.Sort(list)
				t.Logf("%s: median %v, longest %v", what, list[rounds/2], list[rounds-1])
				if list[rounds/2] >= ttl/10 {
					t.Errorf("%s takes %v, more than a tenth of the TTL", what, list[rounds/2])
				}
			}
			s.eventuallyFree(t)

			b := use(t, addrs)
			var mu sync.Mutex
			var named []string
			b.opts.Detail = func(msg string) {
				mu.Lock()
				defer mu.Unlock()
				named = append(named, msg)
			}
			h := backendtest.MustAcquire(t, b, leaseOf(ttl))
			backendtest.Eventually(t, "both are named", func() bool {
				mustRenew(t, h)
				mu.Lock()
				defer mu.Unlock()
				return len(named) >= 2
			})
			mustRenew(t, h)
			backendtest.MustRelease(t, h)
			mu.Lock()
			defer mu.Unlock()
			for _, addr := range dead {
				host, _, _ := strings.Cut(addr, ":")
				if host == "127.0.0.1" {
					host = addr
				}
				if all := strings.Join(named, "\n"); len(named) != 2 || strings.Count(all, host) == 0 {
					t.Errorf("%s is to be named, and each once: %s", addr, all)
				}
			}
			if list, err := b.Inspect(t.Context(), "j"); err != nil || len(list[0].Problems) != 1 {
				t.Errorf("inspect: %+v, %v; want one line about the dead", list, err)
			}
		})
	}
}

// TestThreeDeadOfFive: the service does not work, and says so at once; nothing is left on
// the two servers that live.
func TestThreeDeadOfFive(t *testing.T) {
	s := start(t, 2)
	var addrs []string
	for range 3 {
		addrs = append(addrs, net.JoinHostPort("127.0.0.1", fmt.Sprint(daemon.FreePort(t))))
	}
	b := use(t, append(addrs, s.addrs()...))
	for range 20 {
		_, err := b.Acquire(t.Context(), backendtest.NoWait(leaseOf(time.Minute)))
		if !errors.Is(err, backend.ErrUnavailable) || errors.As(err, new(*backend.BusyError)) || !strings.Contains(err.Error(), "3 of the 5") {
			t.Fatalf("acquire: %v, want that 3 of 5 do not work", err)
		}
		if left := s.tokens(t); strings.Join(left, "") != "" {
			t.Fatalf("left: %q", left)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	if _, err := b.Acquire(ctx, leaseOf(time.Minute)); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a wait: %v", err)
	}
	s.eventuallyFree(t)
	if _, err := b.Inspect(t.Context(), "j"); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("inspect: %v", err)
	}
}

// far puts servers behind relays.
func far(t *testing.T, s servers) (relays []*relay.Relay, addrs []string) {
	t.Helper()
	for _, server := range s {
		r := relay.New(t, server.Addr())
		relays, addrs = append(relays, r), append(addrs, r.Addr())
	}
	return relays, addrs
}

// TestFarServers: a majority that takes too long for the lease is none, and what it took is
// given back; also when it becomes slow only after that.
func TestFarServers(t *testing.T) {
	s := start(t, 5)
	relays, addrs := far(t, s)
	delay := func(d time.Duration) {
		for _, r := range relays {
			r.Delay(d)
		}
	}
	for _, tt := range []struct {
		ttl, away time.Duration // one way
		works     bool
	}{
		{time.Second, 350 * time.Millisecond, false},
		{time.Second, 120 * time.Millisecond, false}, // connections take their time too
		{20 * time.Second, 120 * time.Millisecond, true},
	} {
		delay(tt.away)
		attempt := func() {
			b := open(t, addrs, "", "dlock")
			before := boottime.Now()
			h, err := b.Acquire(t.Context(), backendtest.NoWait(leaseOf(tt.ttl)))
			if tt.works != (err == nil) || err != nil && !errors.Is(err, backend.ErrUnavailable) {
				t.Errorf("%v away, for %v: %v", tt.away, tt.ttl, err)
			}
			if err == nil {
				if l := h.Grant().Lease; l.Sent < before || boottime.Now() >= l.Deadline() {
					t.Errorf("a hold whose lease is over: %+v", l)
				}
				backendtest.MustRelease(t, h)
			}
			b.Close()
		}
		attempt()
		if tt.works {
			continue
		}
		var several sync.WaitGroup
		for range 3 {
			several.Go(attempt)
		}
		several.Wait()
	}
	for _, r := range relays {
		r.Pass()
	}
	s.eventuallyFree(t)
	b := use(t, addrs)
	h := backendtest.MustAcquire(t, b, leaseOf(time.Second))
	delay(350 * time.Millisecond)
	if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a renewal that takes as long as the lease: %v", err)
	}
}

// TestSlowClock: the process is held up while it takes the lock, so that little of the
// lease is left when it goes on.
func TestSlowClock(t *testing.T) {
	s := start(t, 3)
	b := use(t, s.addrs())
	jump := boottime.Instant(0)
	b.clock = func() boottime.Instant {
		jump += boottime.Instant(700 * time.Millisecond)
		return boottime.Now() + jump
	}
	_, err := b.Acquire(t.Context(), backendtest.NoWait(leaseOf(time.Second)))
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "longer --ttl") {
		t.Errorf("acquire: %v", err)
	}
	s.eventuallyFree(t)
	b.clock = boottime.Now
	h := backendtest.MustAcquire(t, b, leaseOf(time.Second))
	jump = 0
	b.clock = func() boottime.Instant {
		jump += boottime.Instant(1100 * time.Millisecond)
		return boottime.Now() + jump
	}
	if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a renewal that came when the lease was over: %v", err)
	}
}

// TestLostOnSome: servers that lose the lock get it again, but only if a majority has it.
func TestLostOnSome(t *testing.T) {
	for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared, backendtest.Slots(2)} {
		t.Run(mode.String(), func(t *testing.T) {
			s := start(t, 5)
			b := use(t, s.addrs())
			req := leaseOf(time.Minute)
			req.Mode = mode
			h := backendtest.MustAcquire(t, b, req)
			onAll := func() bool { return !slices.Contains(s.tokens(t), "") }
			backendtest.Eventually(t, "all have it", onAll)
			s.flush(t, 0, 3)
			mustRenew(t, h)
			backendtest.Eventually(t, "all have it again", onAll)
			one := backendtest.InspectOne(t, b, "j")
			if len(one.Holders) != 1 || one.Holders[0].Owner != req.Owner || one.Fence != h.Grant().Fence {
				t.Errorf("restored: %+v", one)
			}
			s.flush(t, 1, 2, 4)
			for range 3 {
				if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrLost) {
					t.Errorf("renewal of what a majority has lost: %v", err)
				}
			}
			if got := s.tokens(t); got[1]+got[2]+got[4] != "" {
				t.Errorf("raised from the dead: %q", got)
			}
		})
	}
}

// TestFencesGrow: one server after the other loses its data, some are slow, and each hold
// has a larger fence than the one before.
func TestFencesGrow(t *testing.T) {
	s := start(t, 5)
	relays, addrs := far(t, s)
	b, last := use(t, addrs), uint64(0)
	for i := range 60 {
		switch victim := rand.N(len(s)); i % 4 {
		case 0:
			s.flush(t, victim)
		case 1:
			relays[victim].Delay(20 * time.Millisecond)
		case 2:
			relays[victim].Cut()
		case 3:
			relays[victim].Pass()
		}
		h := backendtest.MustAcquire(t, b, leaseOf(10*time.Second))
		if f := h.Grant().Fence; f <= last {
			t.Fatalf("round %d: fence %d after %d", i, f, last)
		} else {
			last = f
		}
		backendtest.MustRelease(t, h)
	}
}

// TestRoundTrips: a take is one request of each server where they agree on the number, and
// two where they do not.
func TestRoundTrips(t *testing.T) {
	s := start(t, 5)
	b := use(t, s.addrs())
	turn := func() {
		h := backendtest.MustAcquire(t, b, leaseOf(time.Minute))
		backendtest.MustRelease(t, h)
		s.eventuallyFree(t)
	}
	agree := func() { // a majority that knows the largest number is enough for a turn
		backendtest.Eventually(t, "all servers know one number", func() bool {
			turn()
			numbers := s.numbers(t)
			return !slices.ContainsFunc(numbers, func(n string) bool { return n != numbers[0] })
		})
	}
	for _, c := range []struct {
		what string
		do   func()
		want int // with the release
	}{
		{"they agree", agree, 2}, // the first numbers are the servers' own clocks
		{"they do not", func() {
			for i, server := range s {
				if err := server.Client().HIncrBy(t.Context(), lockKey+":m", "f", int64(i)).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}, 3},
		{"they agree again", agree, 2},
	} {
		c.do()
		var before []int
		for _, server := range s {
			before = append(before, calls(t, server))
		}
		turn()
		for i, server := range s {
			if n := calls(t, server) - before[i]; n != c.want {
				t.Errorf("%s: %d requests of server %d, want %d", c.what, n, i, c.want)
			}
		}
	}
}

// TestSplitVotes: nobody has a majority; that is busy for who does not wait, and the others
// get the lock when there is one to be had.
func TestSplitVotes(t *testing.T) {
	s := start(t, 5)
	b := use(t, s.addrs())
	w := backendtest.Acquire(t, b, leaseOf(time.Minute)) // joins while the votes are split
	backendtest.MustRelease(t, w.Hold(t))
	s.eventuallyFree(t)
	for i, foreign := range []string{"x", "x", "y", "y"} {
		if err := s[i].Client().Set(t.Context(), lockKey, foreign, 3*time.Second).Err(); err != nil {
			t.Fatal(err)
		}
	}
	backendtest.MustBeBusy(t, b, leaseOf(time.Minute))
	if got := s.tokens(t); got[4] != "" {
		t.Errorf("left on the fifth: %q", got)
	}
	w = backendtest.Wait(t, b, leaseOf(time.Minute))
	backendtest.MustRelease(t, w.Hold(t))
	s.eventuallyFree(t)
}

// TestManySplitAtOnce: contenders that all begin at once, one of which must get it.
func TestManySplitAtOnce(t *testing.T) {
	s := start(t, 5)
	for range 10 {
		var all sync.WaitGroup
		var mu sync.Mutex
		var got []backend.Hold
		for range 4 {
			b := use(t, s.addrs())
			all.Go(func() {
				h, err := b.Acquire(t.Context(), backendtest.NoWait(leaseOf(time.Minute)))
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, h)
				} else if !errors.As(err, new(*backend.BusyError)) {
					t.Errorf("acquire: %v", err)
				}
			})
		}
		all.Wait()
		if len(got) != 1 {
			t.Fatalf("%d holders, want 1", len(got))
		}
		backendtest.MustRelease(t, got[0])
		s.eventuallyFree(t)
	}
}

// TestSlowMinority: nobody waits for two slow servers, and they are cleaned up behind.
func TestSlowMinority(t *testing.T) {
	s := start(t, 5)
	relays, addrs := far(t, s)
	b := use(t, addrs)
	backendtest.MustRelease(t, backendtest.MustAcquire(t, b, leaseOf(time.Minute))) // connects
	slow := relays[:2]
	for _, r := range slow {
		r.HoldRequests()
	}
	underWay := func(h backend.Hold, what string) {
		t.Helper()
		for _, seat := range h.(*hold).seats[:len(slow)] {
			seat.mu.Lock()
			last := seat.last
			seat.mu.Unlock()
			select {
			case <-last:
				t.Errorf("%s waited for a slow server", what)
			default:
			}
		}
	}
	h := backendtest.MustAcquire(t, b, leaseOf(time.Minute))
	underWay(h, "acquire")
	mustRenew(t, h)
	underWay(h, "renew")
	backendtest.MustRelease(t, h)
	underWay(h, "release")
	for _, r := range slow {
		r.Pass()
	}
	s.eventuallyFree(t)
}

// TestRefusalsOfAMinority: a server that has lost the hold and two that are away do not
// make it a loss; nor do they when they are back.
func TestRefusalsOfAMinority(t *testing.T) {
	s := start(t, 5)
	relays, addrs := far(t, s)
	b := use(t, addrs)
	h := backendtest.MustAcquire(t, b, leaseOf(time.Minute))
	backendtest.Eventually(t, "all have it", func() bool { return !slices.Contains(s.tokens(t), "") })
	s.flush(t, 0)
	for _, r := range relays[1:3] {
		r.Refuse()
	}
	for range 3 {
		if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrLost) {
			t.Errorf("renewal: %v, want that servers do not work", err)
		}
	}
	if got := s.tokens(t)[0]; got != "" {
		t.Errorf("without a majority the first was given %q again", got)
	}
	for _, r := range relays[1:3] {
		r.Pass()
	}
	backendtest.Eventually(t, "it is renewed, and the first has it again", func() bool {
		_, err := h.Renew(t.Context())
		return err == nil && s.tokens(t)[0] != ""
	})
	backendtest.MustRelease(t, h)
	s.eventuallyFree(t)
}

// TestForgottenScripts: a server that knows no scripts any more is sent them again.
func TestForgottenScripts(t *testing.T) {
	s := start(t, 3)
	b := use(t, s.addrs())
	forget := func() {
		for _, server := range s {
			if err := server.Client().ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		h := backendtest.MustAcquire(t, b, leaseOf(time.Minute))
		forget()
		mustRenew(t, h)
		forget()
		backendtest.MustRelease(t, h)
		forget()
	}
	s.eventuallyFree(t)
}

// TestEveryKeyEnds: the lock's key has an end that is the lease's, to the millisecond, on
// every server, after a renewal and a repair too.
func TestEveryKeyEnds(t *testing.T) {
	s := start(t, 5)
	b := use(t, s.addrs())
	const ttl = 9999 * time.Second / 10
	for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared, backendtest.Slots(2)} {
		req := leaseOf(ttl)
		req.Mode = mode
		h := backendtest.MustAcquire(t, b, req)
		for _, what := range []string{"a take", "a renewal", "a repair"} {
			if what == "a repair" {
				s.flush(t, 0, 3)
			}
			if what != "a take" {
				mustRenew(t, h)
			}
			backendtest.Eventually(t, "all have it", func() bool { return !slices.Contains(s.tokens(t), "") })
			for i, server := range s {
				if left := server.Client().PTTL(t.Context(), lockKey).Val(); left <= ttl-backendtest.Patience || left > ttl {
					t.Errorf("%v: after %s server %d keeps the key for %v, want %v", mode, what, i, left, ttl)
				}
			}
		}
		backendtest.MustRelease(t, h)
		s.eventuallyFree(t)
	}
}

// TestReleaseIsRetried: a server that is away when the lock is given back gets to know.
func TestReleaseIsRetried(t *testing.T) {
	s := start(t, 5)
	relays, addrs := far(t, s)
	b := use(t, addrs)
	h := backendtest.MustAcquire(t, b, leaseOf(time.Hour))
	backendtest.Eventually(t, "all have it", func() bool { return !slices.Contains(s.tokens(t), "") })
	for _, r := range relays[:2] {
		r.Refuse()
	}
	backendtest.MustRelease(t, h)
	for _, r := range relays[:2] {
		r.Pass()
	}
	s.eventuallyFree(t)
}

// TestLineIsQuiet: a hand-over costs each server a few requests, however many wait.
func TestLineIsQuiet(t *testing.T) {
	const waiters = 20
	s := start(t, 3)
	held := backendtest.MustAcquire(t, use(t, s.addrs()), leaseOf(time.Minute))
	var line []*backendtest.Waiter
	looker := use(t, s.addrs())
	for i := range waiters {
		line = append(line, backendtest.Wait(t, use(t, s.addrs()), leaseOf(time.Minute)))
		backendtest.Eventually(t, "it is in line", func() bool { return len(backendtest.InspectOne(t, looker, "j").Waiters) == i+1 })
	}
	before := calls(t, s[0])
	for _, w := range line {
		backendtest.MustRelease(t, held)
		held = w.Hold(t)
	}
	n := calls(t, s[0]) - before
	t.Logf("%d requests of a server for %d hand-overs", n, waiters)
	if n > 5*waiters {
		t.Errorf("%d requests of a server for %d hand-overs", n, waiters)
	}
	backendtest.MustRelease(t, held)
}

// TestDeadHead: the first in line has died without a word; nobody waits for its place.
func TestDeadHead(t *testing.T) {
	s := start(t, 3)
	held := backendtest.MustAcquire(t, use(t, s.addrs()), leaseOf(time.Hour))
	dead := use(t, s.addrs())
	claim := held.(*hold).claim
	claim.Token, claim.Place, claim.Ticket = uuid.NewString(), time.Hour, 1
	for _, n := range dead.nodes {
		if _, err := n.Take(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	w := backendtest.Wait(t, use(t, s.addrs()), leaseOf(time.Hour))
	backendtest.Eventually(t, "it is in line", func() bool { return len(backendtest.InspectOne(t, dead, "j").Waiters) == 2 })
	backendtest.MustRelease(t, held)
	backendtest.MustRelease(t, w.Hold(t))
}
