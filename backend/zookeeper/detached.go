package zookeeper

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// detachedHold is a hold without a process behind it. It lasts, at least, until its lease
// has ended by the server's clock and a contender evicts it.
type detachedHold struct {
	b     *Backend
	dir   string
	place place
	fence uint64
	ttl   time.Duration
	lease backend.Lease // as granted; of one that was found, unknown
}

// Attach finds a detached hold by its token.
func (b *Backend) Attach(ctx context.Context, name, token string, ttl time.Duration) (backend.Hold, error) {
	dir, err := b.dir(name)
	if err != nil {
		return nil, err
	}
	if !isToken(token) {
		return nil, backend.ErrLost
	}
	s, err := b.shared()
	if err != nil {
		return nil, err
	}
	places, err := b.list(ctx, s, dir)
	if err != nil {
		return nil, err
	}
	for i, p := range places {
		if p.token != token {
			continue
		}
		switch p.state {
		case detached:
			e, err := b.read(ctx, s, dir+"/"+p.node)
			if is(err, zk.ErrNoNode) {
				return nil, backend.ErrLost
			} else if err != nil {
				return nil, err
			}
			if ttl == 0 {
				ttl = time.Duration(e.TTL) * time.Millisecond
			}
			return &detachedHold{b: b, dir: dir, place: p, fence: e.fence(), ttl: ttl}, nil
		case inLine:
			if holds(places, i) {
				return nil, backend.ErrRunning
			}
		}
	}
	return nil, backend.ErrLost
}

// Grant tells token, fence and the lease as it was granted.
func (h *detachedHold) Grant() backend.Grant {
	return backend.Grant{Token: h.place.token, Fence: h.fence, Lease: h.lease}
}

func (h *detachedHold) path() string { return h.dir + "/" + h.place.node }

// Renew extends the lease. One that has ended can be extended until somebody has
// evicted it: both are decided by the version of the node.
func (h *detachedHold) Renew(ctx context.Context) (backend.Lease, error) {
	s, err := h.b.shared()
	if err != nil {
		return backend.Lease{}, err
	}
	return h.renew(ctx, s, h.b.clock())
}

// renew makes the lease last for the hold's TTL from sent at least, and never shorter
// than it would have.
func (h *detachedHold) renew(ctx context.Context, s *session, sent boottime.Instant) (backend.Lease, error) {
	for {
		e, err := h.b.read(ctx, s, h.path())
		if err == nil {
			data := e.record
			data.Until, data.TTL = e.stat.Mtime+e.lasts().Milliseconds(), h.ttl.Milliseconds()
			var stat *zk.Stat
			stat, err = call(ctx, s, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(h.path(), data.encode(), e.stat.Version) })
			if err == nil {
				return leaseOf(sent, h.granted(e.stat, entry{record: data, stat: *stat})), nil
			}
		}
		switch {
		case is(err, zk.ErrNoNode):
			return backend.Lease{}, backend.ErrLost
		case !is(err, zk.ErrBadVersion):
			return backend.Lease{}, err
		}
	}
}

// granted is how long the lease lasts from its renewal: the rest of a longer one counts
// if one machine's clock has measured it.
func (h *detachedHold) granted(before zk.Stat, now entry) time.Duration {
	if epoch(before.Mzxid) != epoch(now.stat.Mzxid) {
		return h.ttl
	}
	return now.lasts()
}

// Release ends the hold, or puts a tail in its place.
func (h *detachedHold) Release(ctx context.Context, tail time.Duration) error {
	return retry(ctx, func(ctx context.Context) error {
		s, err := h.b.shared()
		if err != nil {
			return err
		}
		e, err := h.b.read(ctx, s, h.path())
		if is(err, zk.ErrNoNode) {
			return backend.ErrLost
		} else if err != nil {
			return err
		}
		err = h.b.release(ctx, s, h.dir, h.place, tail, record{Token: e.Token, Owner: e.Owner, Since: e.since(), Fence: h.fence})
		if errors.Is(err, backend.ErrLost) && s.isOver() {
			return h.b.translate(zk.ErrSessionExpired, nil) // of the session for looking about only
		}
		return err
	})
}

// Lost is nil: nobody waits for it.
func (h *detachedHold) Lost() <-chan error { return nil }

// KeepOpen lists nothing: the lock is elsewhere.
func (h *detachedHold) KeepOpen() []*os.File { return nil }
