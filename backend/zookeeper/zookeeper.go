// Package zookeeper is the lock service on ZooKeeper.
//
// A contender is a pair of ephemeral sequential nodes below the lock's node, made in
// one step, so that Curator's InterProcessMutex and kazoo's Lock, which count different
// names, both stand in one line with us; package line decides who of them holds, and
// whom each watches. With recipe=rwlock it is one node of Curator's
// InterProcessReadWriteLock. What has no process behind it, a detached hold or a tail,
// is the same pair as persistent nodes, which keep the place and are evicted once
// their lease has ended by the server's clock.
//
// Each hold has a session of its own. Its lease is the session's timeout as the server
// granted it, counted as the leader of an ensemble counts it: see clock.
package zookeeper

import (
	"context"
	"sync"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// MaxTTL is the longest lease that can be asked for. A session gets what the server
// allows, 40 s by default; the lease of a detached hold is ours alone.
const MaxTTL = 365 * 24 * time.Hour

// Backend is the locks of one namespace on one ensemble. It connects when first used.
type Backend struct {
	opts  Options
	clock func() boottime.Instant

	mu       sync.Mutex
	sessions map[*session]bool // those that are open
	common   *session          // for what needs no session of its own; nil until then
	closed   bool
	closing  sync.WaitGroup // sessions that say goodbye
	warned   sync.Once
}

var _ backend.Backend = (*Backend)(nil)

// New returns the Backend that opts describe; it connects to nothing.
func New(opts Options) *Backend {
	if opts.Warn == nil {
		opts.Warn = func(string) {}
	}
	return &Backend{opts: opts, clock: boottime.Now, sessions: map[*session]bool{}}
}

// Limits tells the bounds of a lease.
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{Kind: "zk", Address: b.opts.address(), MinTTL: time.Second, MaxTTL: MaxTTL}
}

// commonTimeout is the session timeout asked for where no lease hangs on it.
const commonTimeout = 10 * time.Second

// shared is the session for what needs none of its own.
func (b *Backend) shared() (*session, error) {
	b.mu.Lock()
	s := b.common
	b.mu.Unlock()
	if s != nil && !s.isOver() {
		return s, nil
	}
	s, err := b.open(commonTimeout)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.common != nil && !b.common.isOver() { // somebody was faster
		b.goodbye(s)
		return b.common, nil
	}
	b.common = s
	return s, nil
}

// goodbye ends a session in the background; b.mu is held.
func (b *Backend) goodbye(s *session) {
	delete(b.sessions, s)
	b.closing.Go(s.close)
}

// end ends a session that has nothing to hold any more.
func (b *Backend) end(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sessions[s] {
		b.goodbye(s)
	}
}

// Close ends the sessions. One that holds a lock is not ended, which would release it,
// but forgotten: it ends by itself.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	for s := range b.sessions {
		if s.holds.Load() {
			delete(b.sessions, s)
			b.closing.Go(s.abandon)
		} else {
			b.goodbye(s)
		}
	}
	b.mu.Unlock()
	b.closing.Wait()
	return nil
}

// atLeast is ctx, but does not end before d has passed: a very short wait still asks once.
func atLeast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	passed := time.After(d)
	stop := context.AfterFunc(ctx, func() {
		<-passed
		cancel(context.Cause(ctx))
	})
	return longer, func() {
		stop()
		cancel(nil)
	}
}
