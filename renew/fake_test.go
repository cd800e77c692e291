package renew

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

const ms = time.Millisecond

// reply is what the scripted service does with one renewal.
type reply struct {
	after time.Duration
	err   error
	ttl   time.Duration // as granted; 0: as before
	hangs bool          // answers when the context ends
	deaf  bool          // does not even look at the context
}

// script is a service that replies as it is told, and remembers what it was asked. The
// clock is its own too: it can jump, as it does when a machine sleeps.
type script struct {
	mu      sync.Mutex
	replies []reply // for the first renewals, in order
	rest    reply   // for all others
	ttl     time.Duration
	every   time.Duration // ttl/3 if 0
	asleep  time.Duration

	seen  record
	thaw  chan struct{} // ends all that hangs deaf
	began boottime.Instant
}

// record is what happened so far.
type record struct {
	asked    []time.Duration // when each renewal was asked for
	inFlight int
	most     int // in flight at one time
	granted  []grant
	leases   []backend.Lease // what OnLease was told
	errs     []error         // what OnError was told
}

// grant is one confirmed lease, and when it was confirmed.
type grant struct {
	lease backend.Lease
	at    boottime.Instant
}

func newScript(ttl time.Duration, replies ...reply) *script {
	s := &script{ttl: ttl, replies: replies, thaw: make(chan struct{})}
	s.began = s.now()
	return s
}

func (s *script) now() boottime.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return boottime.Instant(time.Now().UnixNano()).Add(s.asleep)
}

// at is the moment d after the beginning.
func (s *script) at(d time.Duration) boottime.Instant { return s.began.Add(d) }

func (s *script) sleep(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep += d
}

// then changes the reply to all renewals that are not in the script.
func (s *script) then(r reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = r
}

// saw is what happened so far. What it lists is not written to any more.
func (s *script) saw() record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

func (s *script) lease() backend.Lease {
	every := s.every
	if every == 0 {
		every = s.ttl / 3
	}
	return backend.Lease{Sent: s.now(), TTL: s.ttl, Every: every}
}

// Renew replies with what comes next in the script.
func (s *script) Renew(ctx context.Context) (backend.Lease, error) {
	lease := s.lease()
	r := s.ask(lease.Sent)
	if r.ttl > 0 {
		lease.TTL, lease.Every = r.ttl, r.ttl/3
	}
	err := s.work(ctx, r)
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.inFlight--
	if err != nil {
		return backend.Lease{}, err
	}
	s.seen.granted = append(s.seen.granted, grant{lease, now})
	return lease, nil
}

func (s *script) ask(now boottime.Instant) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.seen.asked)
	s.seen.asked = append(s.seen.asked, now.Sub(s.began))
	s.seen.inFlight++
	s.seen.most = max(s.seen.most, s.seen.inFlight)
	if n < len(s.replies) {
		return s.replies[n]
	}
	return s.rest
}

func (s *script) work(ctx context.Context, r reply) error {
	done := ctx.Done()
	if r.deaf {
		done = s.thaw
	}
	var after <-chan time.Time
	if !r.hangs {
		after = time.After(r.after)
	}
	select {
	case <-after:
		return r.err
	case <-done:
		return fmt.Errorf("hung: %w", context.Canceled)
	}
}

func (s *script) config(grace time.Duration) Config {
	return Config{
		Grace: grace,
		Now:   s.now,
		OnLease: func(l backend.Lease) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seen.leases = append(s.seen.leases, l)
		},
		OnError: func(err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.seen.errs = append(s.seen.errs, err)
		},
	}
}

// keep begins to keep a lease; the end of the test stops it, and with that ends its
// goroutines, or the bubble complains.
func (s *script) keep(t *testing.T, cfg Config) *Keeper {
	lease := s.lease()
	s.seen.granted = append(s.seen.granted, grant{lease, lease.Sent})
	k := Keep(s, lease, cfg)
	t.Cleanup(func() {
		k.Stop()
		close(s.thaw)
	})
	return k
}

// lost waits for the loss, and tells how long after the beginning it came.
func (s *script) lost(t *testing.T, k *Keeper, within time.Duration) (Loss, time.Duration) {
	t.Helper()
	select {
	case loss := <-k.Lost():
		return loss, s.now().Sub(s.began)
	case <-time.After(within):
		t.Fatalf("no loss within %v", within)
		panic("unreachable")
	}
}

// kept fails the test if there is a loss within the time given.
func (s *script) kept(t *testing.T, k *Keeper, d time.Duration) {
	t.Helper()
	select {
	case loss := <-k.Lost():
		t.Fatalf("lost after %v: %+v", s.now().Sub(s.began), loss)
	case <-time.After(d):
	}
	synctest.Wait()
}
