// Package mysql is the lock service on MySQL or MariaDB.
//
// A lock is one row of the table dlock_lock, whatever the mode, so that all modes
// exclude each other. Beside the row stand two of the server's named locks
// (GET_LOCK), which a connection loses with its end. The door of a lock is the line:
// who waits stands before it, who has it is the head, and an exclusive holder keeps
// it. The gate of a token says that its holder's connection lives: who waits for a
// holder waits for its gate, and a hold whose gate is held does not end by the clock
// of the server, which may be set.
//
// Neither of them is the lock. Every change of the row is one statement that compares
// what was read before, by the row's version, or that takes a row only if it is free.
package mysql

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
	"github.com/dlock/dlock/internal/boottime"
)

// MaxTTL is the longest lease.
const MaxTTL = 365 * 24 * time.Hour

// Backend is the locks of one namespace in one database. It connects when first used.
type Backend struct {
	opts  Options
	clock func() boottime.Instant

	mu     sync.Mutex
	parked *session // one that was used and may be used again

	around sync.Once   // the look at the server beside the first renewal
	sound  atomic.Bool // the table was found to be as it must be
	single atomic.Bool // the server was found to be no cluster
}

var _ backend.Backend = (*Backend)(nil)

// New returns the Backend that opts describe; it connects to nothing.
func New(opts Options) *Backend {
	if opts.Warn == nil {
		opts.Warn = func(string) {}
	}
	return &Backend{opts: opts, clock: boottime.Now}
}

// Limits tells the bounds of a lease.
func (b *Backend) Limits() backend.Limits {
	l := backend.Limits{Kind: "mysql", Address: b.opts.address(), MinTTL: time.Second, MaxTTL: MaxTTL}
	if b.opts.Mode == Pessimistic {
		l.NoDetached = "mode=pessimistic holds the row by a connection, which ends with the process; use mode=table, which excludes it"
	}
	return l
}

// Close closes the connection that is kept for the next use.
func (b *Backend) Close() error {
	b.mu.Lock()
	s := b.parked
	b.parked = nil
	b.mu.Unlock()
	s.close()
	return nil
}

// Attach finds a detached hold by its token.
func (b *Backend) Attach(ctx context.Context, name, token string, ttl time.Duration) (backend.Hold, error) {
	id, err := b.lock(name)
	if err != nil {
		return nil, err
	}
	var h *hold
	err = b.with(ctx, func(s *session) error {
		st, err := s.read(ctx, id)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(st.Holders, func(h record.Holder) bool { return h.Token == token })
		if i < 0 || token == "" {
			return backend.ErrLost
		}
		if err := s.judge(ctx, st, token); err != nil {
			return err
		}
		found := st.Holders[i]
		st.Expire(st.now)
		switch alive := slices.ContainsFunc(st.Holders, func(h record.Holder) bool { return h.Token == token }); {
		case !alive, found.Tail, found.Owner.Kind == backend.Foreign:
			return backend.ErrLost
		case found.Owner.Kind == backend.Run:
			return backend.ErrRunning
		}
		h = &hold{b: b, lock: id, token: token, mode: found.Mode, fence: found.Fence, ttl: ttl}
		if ttl == 0 {
			h.ttl = found.TTL
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Revoke marks a run's hold, so that its run stops at its next renewal, and ends a
// detached one, or any with now.
func (b *Backend) Revoke(ctx context.Context, name, prefix string, now bool) (found backend.Holder, err error) {
	id, err := b.lock(name)
	if err != nil {
		return found, err
	}
	var pinned, foreign bool
	err = b.with(ctx, func(s *session) error {
		return s.change(ctx, id, "", func(st *state) error {
			h, err := st.Revoke(st.now, prefix, now)
			if err != nil {
				return err
			}
			found = h.Status(st.now)
			if foreign = h.Owner.Kind == backend.Foreign; foreign {
				return fmt.Errorf("%w: another program holds this lock, and dlock does not end its hold; "+
					"it is the row of %s in the table %s", backend.ErrUnsupported, name, table)
			}
			if pinned = h.Expires == 0; pinned {
				return errPinned
			}
			return nil
		})
	})
	switch {
	case err == nil && now: // its door would stay closed until it notices
		err = b.with(ctx, func(s *session) error { return s.evict(ctx, found.Token) })
	case pinned:
		err = b.with(ctx, func(s *session) error { return s.revokePinned(ctx, id, found.Token, now) })
		found.Revoked = true
	}
	if err != nil {
		return backend.Holder{}, err
	}
	return found, nil
}

// with runs do in a session of its own, and again while the server says that others
// were in the way.
func (b *Backend) with(ctx context.Context, do func(*session) error) error {
	for {
		s, err := b.session(ctx)
		if err != nil {
			return err
		}
		err = do(s)
		b.park(s)
		if !contended(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(firstPause):
		}
	}
}

// noFiles is what a hold across the network keeps open for the guard.
func noFiles() []*os.File { return nil }
