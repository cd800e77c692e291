package mysql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
)

// hold is a lease that we have, or a detached one that we may speak for.
type hold struct {
	b     *Backend
	lock  lockID
	token string
	mode  backend.Mode
	fence uint64
	ttl   time.Duration
	lease backend.Lease // as granted; of a detached hold that was found, unknown

	mu      sync.Mutex
	s       *session    // has the gate; nil for a detached hold, and when it was lost
	linger  *time.Timer // asks the server to keep the session for longer
	expects bool        // a session is wanted between renewals
}

// Grant tells token, fence and the lease as it was granted.
func (h *hold) Grant() backend.Grant {
	return backend.Grant{Token: h.token, Fence: h.fence, Lease: h.lease}
}

// lingerAfter is how old a hold is when it asks the server to keep its session until
// the next renewal: a short command pays nothing for it.
const lingerAfter = idleLimit / 6

// keep makes s the session whose gate says that the holder lives.
func (h *hold) keep(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.s, h.expects = s, true
	if h.ttl/3 >= idleLimit/2 {
		h.linger = time.AfterFunc(lingerAfter, h.stay)
	}
}

// stay asks the server to keep the session until well after the next renewal.
func (h *hold) stay() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tryLimit)
	defer cancel()
	if _, err := h.s.exec(ctx, fmt.Sprintf("SET wait_timeout = %d", int(h.ttl.Seconds())+1)); err != nil {
		h.drop()
	}
}

// drop gives up the session; the next renewal makes another.
func (h *hold) drop() {
	h.s.close()
	h.s = nil
}

// Renew extends the lease if the token still holds the lock. If the connection has
// gone, a new one gets the gate, and the door if nobody else has it.
func (h *hold) Renew(ctx context.Context) (backend.Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, err := h.session(ctx)
	if err != nil {
		return backend.Lease{}, err
	}
	sent, left := h.b.clock(), time.Duration(0)
	err = s.change(ctx, h.lock, h.token, func(st *state) error {
		got, err := st.renew(h.token, h.ttl)
		left = got.Expires.Sub(st.now)
		return err
	})
	h.done(s)
	switch {
	case number(err) == lockWait:
		return backend.Lease{}, h.b.whyLocked(ctx, err)
	case err != nil:
		return backend.Lease{}, err
	}
	h.b.around.Do(func() { go h.b.lookAround() })
	return backend.Lease{Sent: sent, TTL: left, Every: h.ttl / 3}, nil
}

// session is the one that has the gate, or a new one.
func (h *hold) session(ctx context.Context) (s *session, err error) {
	if h.s != nil && h.s.fresh(ctx) {
		return h.s, nil
	}
	if h.s != nil {
		h.drop()
	}
	if s, err = h.b.session(ctx); err != nil || !h.expects {
		return s, err
	}
	if h.mode.Kind == backend.Exclusive {
		_, err = s.one(ctx, "SELECT "+enter+", "+enter, gate(h.token), gate(h.token), h.lock.door, h.lock.door)
	} else {
		_, err = s.one(ctx, "SELECT "+enter, gate(h.token), gate(h.token))
	}
	if err == nil {
		_, err = s.exec(ctx, fmt.Sprintf("SET wait_timeout = %d", int(h.ttl.Seconds())+1))
	}
	if err != nil {
		s.close()
		return nil, err
	}
	h.s = s
	return s, nil
}

// done puts a session away after its use.
func (h *hold) done(s *session) {
	switch {
	case s != h.s:
		h.b.park(s)
	case s.broken:
		h.drop()
	}
}

// renew is record.Renew; the TTL is never less than what is left, since nothing may have
// more left than its TTL.
func (st *state) renew(token string, ttl time.Duration) (record.Holder, error) {
	got, err := st.Renew(st.now, token, ttl)
	if err != nil {
		return got, err
	}
	for i := range st.Holders {
		if h := &st.Holders[i]; h.Token == token {
			h.TTL = max(h.TTL, h.Expires.Sub(st.now))
		}
	}
	return got, nil
}

// releaseTry is how long one try to release may take.
const releaseTry = 2 * time.Second

// Release gives the lock back. It tries until ctx ends. Once an answer went missing,
// "not held" is taken for what that try has done.
func (h *hold) Release(ctx context.Context, tail time.Duration) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.linger != nil {
		h.linger.Stop()
	}
	h.expects = false
	defer func() {
		if h.s != nil {
			h.drop()
		}
	}()
	sure := true
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := h.release(ctx, tail)
		switch {
		case err == nil, errors.Is(err, backend.ErrLost) && !sure:
			return nil
		case !passing(err):
			return err
		}
		sure = sure && answered(err)
		if sleep(ctx, pause) != nil {
			return err
		}
	}
}

// releaseAlone frees the row of the only holder, and its door and gate with it, so that
// the next one wakes while this is being made durable; it waits for that at the row.
const releaseAlone = "UPDATE " + table + " SET expires = IF(RELEASE_ALL_LOCKS() < 0, expires, " + now + "), " +
	"updated_at = " + forward + ", version = version + 1, holders = '', token = ''" + byKey +
	" AND token = ? AND (expires > " + now + " OR IS_USED_LOCK(?) = CONNECTION_ID())"

func (h *hold) release(ctx context.Context, tail time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTry)
	defer cancel()
	var s *session
	if s, err = h.session(ctx); err != nil {
		return err
	}
	defer func() {
		if s == h.s && err == nil {
			h.s = nil // it has no named lock any more
		}
		h.done(s)
	}()
	if h.mode.Kind == backend.Exclusive && tail <= 0 {
		var r result
		r, err = s.exec(ctx, releaseAlone, h.lock.ns, h.lock.name, h.token, gate(h.token))
		if err == nil && r.affected == 0 || number(err) == noSuchTable {
			return backend.ErrLost
		}
		return err
	}
	err = s.change(ctx, h.lock, h.token, func(st *state) error { return st.leave(h.token, tail) })
	if err == nil {
		_, err = s.exec(ctx, "DO RELEASE_ALL_LOCKS()")
		if err != nil {
			s.broken, err = true, nil // its end does it
		}
	}
	return err
}

// leave is record.Leave; the TTL of a tail is its length.
func (st *state) leave(token string, tail time.Duration) error {
	if err := st.Leave(st.now, token, tail); err != nil {
		return err
	}
	for i := range st.Holders {
		if h := &st.Holders[i]; h.Token == token {
			h.TTL = tail
		}
	}
	return nil
}

// Lost is nil: the server does not tell.
func (h *hold) Lost() <-chan error { return nil }

// KeepOpen lists nothing: the lock is elsewhere.
func (h *hold) KeepOpen() []*os.File { return noFiles() }
