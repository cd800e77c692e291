package consul

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// hold is a lock that we have, or a detached one that we may speak for.
type hold struct {
	b        *Backend
	keys     keys
	mode     backend.Mode
	ttl      time.Duration // that is wanted; of a detached one it may be longer than the session's
	grace    time.Duration // the lock-delay
	fence    uint64
	detached bool
	session  *session
	lease    backend.Lease // as granted; of a detached hold that was found, unknown

	waited bool                  // in line: others may, too
	passed int                   // how often the lock has been passed on to here
	next   atomic.Pointer[entry] // whom it can be passed on to

	lost chan error
	stop context.CancelFunc // of the watch
}

// Grant tells token, fence and the lease as it was granted.
func (h *hold) Grant() backend.Grant {
	return backend.Grant{Token: h.keys.token, Fence: h.fence, Lease: h.lease}
}

func (h *hold) leaseOf(sent boottime.Instant, ttl time.Duration) backend.Lease {
	return backend.Lease{Sent: sent, TTL: ttl, Every: ttl / 3}
}

// Renew extends the lease: of the session, and of the group's where the hold is shared.
func (h *hold) Renew(ctx context.Context) (backend.Lease, error) {
	sent := h.b.clock()
	if h.detached {
		return h.renewDetached(ctx, sent)
	}
	if err := h.b.renewSession(ctx, h.session); err != nil {
		return backend.Lease{}, err
	}
	if h.mode.Kind == backend.Exclusive {
		pairs, _, err := h.b.block(ctx, h.keys.lock(), false, 0, 0)
		if err == nil {
			err = h.judge(pairs)
		}
		return h.leaseOf(sent, h.session.ttl), err
	}
	_, _, err := h.check(ctx)
	return h.leaseOf(sent, h.session.ttl), err
}

// check reads the lock, and renews the session of the group.
func (h *hold) check(ctx context.Context) (*view, *entry, error) {
	last := ""
	for {
		v, err := h.b.look(ctx, h.keys)
		if err != nil {
			return nil, nil, err
		}
		e := v.find(h.keys.token)
		switch {
		case e == nil || !v.holds(e) || v.record(e).Tail:
			return nil, nil, backend.ErrLost
		case v.record(e).Revoked:
			return nil, nil, backend.ErrRevoked
		case h.mode.Kind != backend.Shared:
			return v, e, nil
		}
		err = h.b.renewSession(ctx, &session{id: v.lock.Session})
		if !errors.Is(err, backend.ErrLost) || v.lock.Session == last {
			return v, e, err
		}
		last = v.lock.Session // the group may have got another one meanwhile
	}
}

// renewDetached renews the session of a detached hold, or passes the hold on to one that
// lasts longer.
func (h *hold) renewDetached(ctx context.Context, sent boottime.Instant) (backend.Lease, error) {
	for {
		v, e, err := h.check(ctx)
		if err != nil {
			return backend.Lease{}, err
		}
		rec, done := v.record(e), false
		if ttl := rec.ttl(); h.ttl > ttl {
			done, err = h.passOn(ctx, v, e, h.ttl, func(s *session) {
				rec.Until = wallMillis() + s.ttl.Milliseconds()
			}, &rec)
		} else if err = h.b.renewSession(ctx, &session{id: e.session}); err == nil {
			rec.Until, rec.Fence = wallMillis()+rec.TTL, v.fence(e)
			done, err = h.b.write(ctx, v.main(e), rec)
		}
		if err != nil {
			return backend.Lease{}, err
		}
		if done {
			return h.leaseOf(sent, max(h.ttl, rec.ttl())), nil
		}
	}
}

// passOn passes the hold to a new session.
func (h *hold) passOn(ctx context.Context, v *view, e *entry, ttl time.Duration, with func(*session), rec *record) (bool, error) {
	to, err := h.b.newSession(ctx, h.keys.name, ttl, 0)
	if err != nil {
		return false, err
	}
	with(to)
	st, err := h.b.pass(ctx, v, e, to, *rec)
	if err != nil {
		return false, err
	}
	r, err := h.b.do(ctx, st)
	if err == nil && !r.ok {
		_ = h.b.destroySession(ctx, to.id)
	}
	return err == nil && r.ok, err
}

const releaseTry = 2 * time.Second // how long one try to release may take

// Release gives the lock back, and tries until ctx ends. Once an answer went missing,
// "not held" is taken for what that try has done.
func (h *hold) Release(ctx context.Context, tail time.Duration) error {
	if h.stop != nil {
		h.stop()
	}
	sure := true
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := h.release(ctx, tail)
		switch {
		case err == nil, errors.Is(err, backend.ErrLost) && !sure:
			return nil
		case !passing(err):
			return err
		}
		sure = false
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func (h *hold) release(ctx context.Context, tail time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTry)
	defer cancel()
	if h.mode.Kind == backend.Exclusive && tail <= 0 && !h.detached {
		return h.free(ctx)
	}
	for {
		v, err := h.b.look(ctx, h.keys)
		if err != nil {
			return err
		}
		e := v.find(h.keys.token)
		if e == nil || !v.holds(e) || v.record(e).Tail {
			if !h.detached { // the group has ended, say, but our place has not
				_ = h.b.destroySession(ctx, h.session.id)
			}
			return backend.ErrLost
		}
		var done bool
		if rec := v.record(e); tail > 0 && !rec.Revoked {
			done, err = h.leaveTail(ctx, v, e, tail, rec)
		} else {
			done, err = h.leave(ctx, v, e)
		}
		if done || err != nil {
			return err
		}
	}
}

// free passes an exclusive lock on, or frees it in one step, which wakes the next in line,
// and then ends the session.
func (h *hold) free(ctx context.Context) error {
	if next := h.next.Load(); next != nil && h.passed < mostPassed {
		done, err := h.passOver(ctx, next)
		if done {
			_ = h.b.destroySession(ctx, h.session.id) // else it ends by itself
		}
		if done || err != nil {
			return err
		}
	}
	r, err := h.b.txn(ctx,
		sessionOp(api.KVCheckSession, h.keys.lock(), h.session.id, nil), bare(api.KVDelete, h.keys.lock(), 0), bare(api.KVDelete, h.keys.entry(), 0))
	if err != nil {
		return err
	}
	_ = h.b.destroySession(ctx, h.session.id) // else it ends by itself
	if !r.ok {
		return backend.ErrLost
	}
	return nil
}

// leave frees the hold, unless something has changed since it was seen.
func (h *hold) leave(ctx context.Context, v *view, e *entry) (bool, error) {
	st, err := h.b.exit(ctx, v, e)
	if err != nil {
		return false, err
	}
	r, err := h.b.do(ctx, st)
	return err == nil && r.ok, err
}

// leaveTail passes the hold to a session that nobody renews. Consul ends one twice its
// TTL after its beginning.
func (h *hold) leaveTail(ctx context.Context, v *view, e *entry, tail time.Duration, rec record) (bool, error) {
	rec.Tail = true
	return h.passOn(ctx, v, e, max((tail+1)/2, MinTTL), func(s *session) {
		rec.Until = wallMillis() + 2*s.ttl.Milliseconds()
	}, &rec)
}

// Lost tells at once when the key is gone, or when it says that the hold is revoked.
func (h *hold) Lost() <-chan error {
	if h.lost == nil {
		return nil
	}
	return h.lost
}

// watchDelay keeps short commands from paying for the watch.
const watchDelay = 300 * time.Millisecond

// watch watches the hold of a run.
func (h *hold) watch() {
	if h.detached {
		return
	}
	var ctx context.Context
	ctx, h.stop = context.WithCancel(context.Background())
	h.lost = make(chan error, 2)
	if h.waited && h.mode.Kind == backend.Exclusive {
		go h.lookBehind(ctx)
	}
	if h.mode.Kind == backend.Shared {
		go h.watchGroup(ctx)
	}
	go func() {
		for pause, index := watchDelay, uint64(0); ; pause = 0 {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			key := h.keys.lock()
			if h.mode.Kind != backend.Exclusive {
				key = h.keys.entry()
			}
			pairs, last, err := h.b.block(ctx, key, false, index, max(h.session.ttl, shortest))
			if err != nil {
				if !h.rest(ctx) {
					return
				}
				index = 0
				continue
			}
			if err := h.judge(pairs); err != nil {
				h.lost <- err
				return
			}
			if index = last; len(pairs) == 0 {
				index = 0
			}
		}
	}()
}

// watchGroup watches the session that has .lock for a group: whoever ends it ends all its
// holds, and of .lock itself every member that comes or goes would tell.
func (h *hold) watchGroup(ctx context.Context) {
	for pause := watchDelay; ; pause = 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		v, _, err := h.check(ctx)
		if err == nil {
			err = h.b.awaitEnd(ctx, v.lock.Session, max(h.session.ttl, shortest))
		}
		switch {
		case errors.Is(err, backend.ErrLost), errors.Is(err, backend.ErrRevoked):
			h.lost <- err
			return
		case err != nil && !h.rest(ctx):
			return
		}
	}
}

// rest pauses after a query that failed.
func (h *hold) rest(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(lastPoll):
		return true
	}
}

// judge finds out from the main key of a hold whether it is still ours.
func (h *hold) judge(pairs api.KVPairs) error {
	if len(pairs) != 1 || pairs[0].Session != h.session.id {
		return backend.ErrLost
	}
	rec := record{}
	if json.Unmarshal(pairs[0].Value, &rec) == nil && rec.Revoked {
		return backend.ErrRevoked
	}
	return nil
}
