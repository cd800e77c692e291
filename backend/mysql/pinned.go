package mysql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock/dlock/backend"
)

// pinned is a hold of mode=pessimistic: a transaction that has the row locked and stays
// open. The row says, committed before the transaction began, who holds it; only the
// holder's own commit says that it is over. A row that still says so after its
// connection has ended was not left cleanly, and is waited out (see judge).
//
// The lease is the server's patience with a silent connection, wait_timeout, counted
// from the last thing that we said.
type pinned struct {
	b     *Backend
	lock  lockID
	token string
	fence uint64
	ttl   time.Duration
	first backend.Lease
	lost  chan error

	revoked atomic.Bool // somebody has marked it

	stop context.CancelFunc

	mu    sync.Mutex
	s     *session
	gone  error         // final; nil while the lock is held
	until backend.Lease // the latest
	ping  *ping         // on its way; nil while there is none
}

// ping is one question to the server, which has no limit but the lease: to give it up
// would be to give up the connection, and with it the lock.
type ping struct {
	done  chan struct{}
	lease backend.Lease
	err   error
}

// errPinned is the answer of a change that concerns a hold of this kind.
var errPinned = errors.New("held by a transaction")

// Without autocommit the next statement begins a transaction, and to set it commits. Both
// can be set together with something else, which spares a round trip.
const (
	beginTransaction = "autocommit = 0"
	endTransaction   = "SET autocommit = 1"
)

// pin locks the row that the contender has taken.
func (c *contender) pin(ctx context.Context, fence uint64) (backend.Hold, error) {
	s, ttl := c.s, c.req.TTL.Truncate(time.Second)
	if err := s.refuseClusters(ctx); err != nil {
		return nil, err
	}
	if _, err := s.exec(ctx, fmt.Sprintf("SET wait_timeout = %d, "+beginTransaction, int(ttl.Seconds()))); err != nil {
		return nil, err
	}
	sent := c.b.clock()
	if err := c.lockRow(ctx); err != nil {
		if _, failed := s.exec(ctx, endTransaction); failed != nil {
			c.drop()
		}
		return nil, err
	}
	keepCtx, stop := context.WithCancel(context.Background())
	h := &pinned{b: c.b, lock: c.id, token: c.req.Token, fence: fence, ttl: ttl, s: s, stop: stop, lost: make(chan error, 1)}
	h.first = backend.Lease{Sent: sent, TTL: ttl, Every: ttl / 3}
	h.until = h.first
	c.s, c.head = nil, false
	go h.keep(keepCtx)
	go hangup(keepCtx, s.wire, func() { h.end(fmt.Errorf("%w: the server has closed the connection", backend.ErrLost)) })
	return h, nil
}

// lockRow locks the row in the transaction that was begun, and sees to it that the
// transaction and the gate are those of one connection, and the row still ours.
func (c *contender) lockRow(ctx context.Context) error {
	g := gate(c.req.Token)
	v, err := c.s.one(ctx, "SELECT token, CONNECTION_ID(), "+enter+" FROM "+table+byKey+" FOR UPDATE", g, g, c.id.ns, c.id.name)
	if err != nil {
		return err
	}
	if err := c.s.identify(v.natural(1)); err != nil {
		return err
	}
	switch {
	case uint32(c.s.id) != c.s.wire.thread:
		return c.b.behindProxy()
	case v.text(0) != c.req.Token:
		return backend.ErrLost
	case v.number(2) != 1: // an earlier connection of ours is about to end
		return &opError{msg: "the gate is closed", kind: backend.ErrUnavailable, err: errTransient, answered: true, again: true}
	}
	return nil
}

// Grant tells token, fence and the lease as it was granted.
func (h *pinned) Grant() backend.Grant {
	return backend.Grant{Token: h.token, Fence: h.fence, Lease: h.first}
}

// keep asks the server again and again, so that a revocation or another end of the hold
// is known soon.
func (h *pinned) keep(ctx context.Context) {
	for sleep(ctx, min(h.ttl/3, time.Second)) == nil {
		p := h.ask()
		select {
		case <-ctx.Done():
			return
		case <-p.done:
		}
		if errors.Is(p.err, backend.ErrLost) || errors.Is(p.err, backend.ErrRevoked) {
			h.tell(p.err)
			return
		}
	}
}

// tell reports the end of the hold, once.
func (h *pinned) tell(err error) {
	select {
	case h.lost <- err:
	default:
	}
}

// end notes that the lock is lost for good, and reports it.
func (h *pinned) end(err error) {
	h.mu.Lock()
	if h.gone == nil {
		h.gone = err
	}
	h.mu.Unlock()
	h.tell(err)
}

// ask is the ping that is on its way, or a new one.
func (h *pinned) ask() *ping {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ping != nil {
		return h.ping
	}
	p := &ping{done: make(chan struct{})}
	if h.gone != nil {
		p.err = h.gone
		close(p.done)
		return p
	}
	h.ping = p
	sent := h.b.clock()
	left := h.until.Sent.Add(h.until.TTL).Sub(sent)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), left)
		defer cancel()
		err := h.question(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		p.lease, p.err, h.ping = backend.Lease{Sent: sent, TTL: h.ttl, Every: h.ttl / 3}, err, nil
		switch {
		case err == nil:
			h.until = p.lease
		case errors.Is(err, backend.ErrLost) && h.gone == nil:
			h.gone = err
		}
		close(p.done)
	}()
	return p
}

// question asks whether we still are who we were, and whether somebody wants the lock
// back. Every failure of the connection is the end of the lock: there is no second one.
func (h *pinned) question(ctx context.Context) error {
	v, err := h.s.one(ctx, "SELECT CONNECTION_ID(), (SELECT COUNT(*) FROM "+table+byKey+")", markNS, h.token)
	if err == nil {
		err = h.s.identify(v.natural(0))
	}
	switch {
	case err != nil && (h.s.broken || !passing(err)):
		h.s.close()
		return fmt.Errorf("%w: its connection is lost (%v)", backend.ErrLost, err)
	case err != nil:
		return err
	case v.number(1) > 0:
		h.revoked.Store(true)
		return backend.ErrRevoked
	}
	return nil
}

// Renew has the server hear from us.
func (h *pinned) Renew(ctx context.Context) (backend.Lease, error) {
	for called := h.b.clock(); ; {
		p := h.ask()
		select {
		case <-ctx.Done():
			return backend.Lease{}, &opError{msg: h.b.opts.address() + " does not answer", kind: backend.ErrUnavailable, err: context.Cause(ctx)}
		case <-p.done:
		}
		if p.err != nil || p.lease.Sent >= called {
			return p.lease, p.err
		}
	}
}

// Release says in the row that it is free, or leaves a tail, and commits. After a loss it
// says so over another connection: the command has ended, and nobody need wait longer.
func (h *pinned) Release(ctx context.Context, tail time.Duration) error {
	h.stop()
	h.mu.Lock()
	gone, asked := h.gone, h.ping
	h.gone = backend.ErrLost // from now on
	h.mu.Unlock()
	if asked != nil { // it has the connection
		select {
		case <-asked.done:
		case <-ctx.Done():
			gone = backend.ErrLost
		}
	}
	var err error
	if gone == nil && h.commit(ctx, tail) == nil {
		h.b.park(h.s)
	} else {
		h.s.close()
		err = h.leave(ctx, tail)
	}
	if h.revoked.Load() {
		h.unmark(ctx)
	}
	return err
}

// commit frees the row in the transaction that has it locked. A revoked hold leaves no
// tail: somebody wants the lock free.
func (h *pinned) commit(ctx context.Context, tail time.Duration) (err error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTry)
	defer cancel()
	if tail > 0 {
		if marked, err := h.s.isMarked(ctx, h.token); err != nil {
			return err
		} else if marked {
			h.revoked.Store(true)
			tail = 0
		}
	}
	statements := []string{endTransaction}
	if tail <= 0 {
		var r result
		if r, err = h.s.exec(ctx, freePinned, h.lock.ns, h.lock.name, h.token); err == nil && r.affected != 1 {
			return backend.ErrLost
		}
	} else {
		err = h.s.change(ctx, h.lock, h.token, func(st *state) error { return st.leave(h.token, tail) })
		statements = append(statements, "DO RELEASE_ALL_LOCKS()")
	}
	for _, statement := range statements {
		if err == nil {
			_, err = h.s.exec(ctx, statement)
		}
	}
	return err
}

const freePinned = "UPDATE " + table + " SET expires = IF(RELEASE_ALL_LOCKS() < 0, expires, " + now + "), updated_at = " + forward +
	", version = version + 1, holders = '', token = ''" + byKey + " AND token = ?"

// leave frees the row from outside, once the server has given up the transaction. It
// tries until ctx ends.
func (h *pinned) leave(ctx context.Context, tail time.Duration) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := h.b.with(ctx, func(s *session) error {
			return s.change(ctx, h.lock, h.token, func(st *state) error {
				for _, held := range st.Holders {
					if held.Token == h.token && tail > 0 && !held.Revoked {
						return st.leave(h.token, tail)
					}
				}
				return st.release(h.token)
			})
		})
		if err == nil || !passing(err) {
			return err
		}
		if sleep(ctx, pause) != nil {
			return err
		}
	}
}

// Lost tells when the connection has ended, or somebody has revoked the hold.
func (h *pinned) Lost() <-chan error { return h.lost }

// KeepOpen lists nothing: a connection that two processes have is of use to neither.
func (h *pinned) KeepOpen() []*os.File { return noFiles() }

// markNS is where the tokens stand that somebody has revoked while their rows were
// locked. No namespace has a control character.
const markNS = "\x00revoked"

func (s *session) isMarked(ctx context.Context, token string) (bool, error) {
	v, err := s.one(ctx, "SELECT COUNT(*) FROM "+table+byKey, markNS, token)
	if err != nil {
		return false, err
	}
	return v.number(0) > 0, nil
}

func (h *pinned) unmark(ctx context.Context) {
	// What is left of it is cleaned up later, as other rows are.
	_ = h.b.with(ctx, func(s *session) error {
		marked, err := s.isMarked(ctx, h.token)
		if err == nil && marked {
			_, err = s.exec(ctx, "DELETE FROM "+table+byKey, markNS, h.token)
		}
		return err
	})
}

// revokePinned marks a hold whose row is locked. With at once it ends its connection and
// frees the row.
func (s *session) revokePinned(ctx context.Context, id lockID, token string, atOnce bool) error {
	if !atOnce {
		_, err := s.exec(ctx, "INSERT IGNORE INTO "+table+" (ns, name, token, holders, version, fence, since, expires, ttl_us, updated_at) "+
			"VALUES (?, ?, '', '', 1, 1, "+now+", "+now+", 0, "+now+")", markNS, token)
		return err
	}
	if err := s.evict(ctx, token); err != nil {
		return err
	}
	return s.change(ctx, id, token, func(st *state) error { return st.release(token) })
}
