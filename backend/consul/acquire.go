package consul

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/line"
	"github.com/dlock/dlock/internal/boottime"
)

const (
	tryLimit      = 3 * time.Second        // of one look, when there may be another after it
	serviceLimit  = 60 * time.Second       // how long a wait goes on while the service does not work
	troubleLimit  = time.Second            // the same for who does not wait
	firstLimit    = 300 * time.Millisecond // that the first look gets in any case
	firstPause    = 50 * time.Millisecond
	lastPause     = time.Second
	withdrawLimit = 500 * time.Millisecond
	longestWait   = 30 * time.Second // TTL of a session that waits for a hold that outlives it
)

// contender is one wish for a lock, from its start until it is granted or given up.
type contender struct {
	b    *Backend
	req  backend.Request
	keys keys
	rec  record

	s        *session         // nil: not known to the service
	inLine   bool             // with a place
	unsure   bool             // a request that takes the lock has not been answered
	trouble  error            // why the session could not be renewed at the last try
	quick    bool             // it may be our turn: ask for the lock before looking
	head     bool             // the only one before us has gone
	answered boottime.Instant // when the service last did its work
	passed   passed           // what the one before us has left for us
	view     *view            // as last seen
	decision line.Decision
	closed   bool // it is our turn, and the gate is closed
	places   int  // that we have lost
	polls    int  // looks at a gate that nobody has, and that is closed nevertheless
	seen     map[string]uint64
}

// Acquire takes the lock, or waits in line for it.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Hold, error) {
	if uuid.Validate(req.Token) != nil || strings.ToLower(req.Token) != req.Token || len(req.Token) != 36 || !req.Mode.Valid() {
		return nil, fmt.Errorf("%w: token %q, mode %q", backend.ErrInvalid, req.Token, req.Mode)
	}
	k, err := b.keys(req.Name, req.Token)
	if err != nil {
		return nil, err
	}
	c := &contender{
		b: b, req: req, keys: k, answered: b.clock(), quick: true, seen: map[string]uint64{},
		rec: record{Token: req.Token, Mode: req.Mode, Owner: req.Owner, Since: wallMillis()},
	}
	h, err := c.acquire(ctx)
	if err != nil {
		c.withdraw()
		return nil, err
	}
	return h, nil
}

func (c *contender) acquire(ctx context.Context) (backend.Hold, error) {
	first, cancel := atLeast(ctx, firstLimit)
	defer cancel()
	h, err := c.ask(first)
	busy := (*backend.BusyError)(nil)
	if !errors.As(err, &busy) {
		return h, err
	}
	if !c.req.Waits(busy.Holders) {
		return nil, busy
	} else if c.req.Waiting != nil {
		if err := c.req.Waiting(backend.Wait{Holders: busy.Holders, Ahead: busy.Ahead}); err != nil {
			return nil, err
		}
	}
	return c.wait(ctx)
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

// ask looks whether the lock is ours, and goes into the line if it is not, until the
// service answers. A session that ended is replaced, with a place at the end.
func (c *contender) ask(ctx context.Context) (backend.Hold, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		h, err := c.try(ctx)
		if err == nil || !passing(err) {
			c.answered = c.b.clock()
			return h, err
		}
		if errors.Is(err, errSession) && c.s != nil {
			_ = c.b.destroySession(ctx, c.s.id) // in case that it was only the place that has ended
			c.restart()
		}
		trouble := c.b.clock().Sub(c.answered)
		if ctx.Err() == nil && (c.req.NoWait && trouble >= troubleLimit || trouble >= max(serviceLimit, c.req.TTL)) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, givenUp(err, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// try asks for the lock once, and goes on as long as others are faster.
func (c *contender) try(ctx context.Context) (backend.Hold, error) {
	if !c.req.NoWait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tryLimit)
		defer cancel()
	}
	if c.s == nil {
		if err := c.begin(ctx, c.req.TTL); err != nil {
			return nil, err
		}
	}
	if c.quick && c.req.Mode.Kind == backend.Exclusive && !c.short() {
		h, err := c.grab(ctx)
		if h != nil || err != nil {
			return h, err
		}
	}
	c.quick = false
	for {
		h, again, err := c.look(ctx)
		if !again {
			return h, err
		}
	}
}

// short tells whether the session is one for waiting only.
func (c *contender) short() bool { return c.req.Detached && c.inLine && c.req.TTL > longestWait }

// restart forgets a session that has ended, and the place that went with it.
func (c *contender) restart() {
	c.s, c.inLine, c.quick, c.head, c.unsure, c.passed = nil, false, true, false, false, passed{}
	c.places++
	c.keys.again = fmt.Sprint(".", c.places)
}

// begin makes the session.
func (c *contender) begin(ctx context.Context, ttl time.Duration) error {
	delay := c.req.Grace + time.Second
	if c.req.Detached {
		delay = 0 // nobody has to stop
	}
	s, err := c.b.newSession(ctx, c.req.Name, ttl, delay)
	if err != nil {
		return err
	}
	if s.ttl > ttl {
		c.b.raised.Do(func() {
			c.b.opts.Warn(fmt.Sprintf("%s has no sessions shorter than %v, so that is the TTL", c.b.opts.address(), s.ttl))
		})
	}
	c.s, c.rec.TTL, c.rec.Delay = s, s.ttl.Milliseconds(), s.delay.Milliseconds()
	return nil
}

// grab takes a lock that nobody has in one step, and gives way if somebody turns out to
// be before us in line.
func (c *contender) grab(ctx context.Context) (backend.Hold, error) {
	rec := c.filled()
	ops := []*api.KVTxnOp{bare(api.KVCheckNotExists, c.keys.lock(), 0), sessionOp(api.KVLock, c.keys.lock(), c.s.id, rec)}
	if !c.inLine {
		ops = append(ops, sessionOp(api.KVLock, c.keys.entry(), c.s.id, rec))
	}
	if !c.head { // the line is long; who comes later gets behind us
		ops = append(ops, bare(api.KVGetTree, c.keys.line, 0))
	}
	c.unsure = true
	r, err := c.b.txn(ctx, ops...)
	if err != nil {
		return nil, err
	}
	switch c.unsure = false; {
	case r.session:
		return nil, errSession
	case !r.ok:
		return nil, nil
	}
	c.inLine = true
	if c.head || newView(c.keys, r.pairs).index(c.req.Token) == 0 {
		return c.granted(r.at(c.keys.lock()).ModifyIndex), nil
	}
	c.unsure = true
	ops = []*api.KVTxnOp{sessionOp(api.KVCheckSession, c.keys.lock(), c.s.id, nil), bare(api.KVDelete, c.keys.lock(), 0)}
	if c.req.NoWait {
		ops = append(ops, bare(api.KVDelete, c.keys.entry(), 0))
		c.inLine = false
	}
	_, err = c.b.txn(ctx, ops...)
	c.unsure = err != nil
	return nil, err
}

// filled is the record that is written while the lock is taken.
func (c *contender) filled() record {
	rec := c.rec
	rec.Since, rec.Held = wallMillis(), true
	if c.req.Detached {
		rec.Until = rec.Since + rec.TTL
	}
	return rec
}

// look reads the lock, from a place in line unless the contender does not wait, and
// passes the gate if it is our turn. It reports true if somebody was faster.
func (c *contender) look(ctx context.Context) (h backend.Hold, again bool, err error) {
	ops := []*api.KVTxnOp{bare(api.KVGetTree, c.keys.line, 0), bare(api.KVGetTree, c.keys.gate, 0)}
	joins := !c.inLine && !c.req.NoWait
	if joins {
		if c.req.Detached && c.req.TTL > longestWait { // a dead waiter should not last that long
			full := c.s
			if err := c.begin(ctx, longestWait); err != nil {
				return nil, false, err
			}
			_ = c.b.destroySession(ctx, full.id)
		}
		ops = append([]*api.KVTxnOp{sessionOp(api.KVLock, c.keys.entry(), c.s.id, c.rec)}, ops...)
	}
	r, err := c.b.txn(ctx, ops...)
	switch {
	case err != nil:
		return nil, false, err
	case r.session:
		return nil, false, errSession
	case !r.ok:
		return c.adopt(ctx)
	}
	c.inLine = c.inLine || joins
	c.view = newView(c.keys, r.pairs)
	i := c.view.index(c.req.Token)
	contenders := c.view.line()
	switch {
	case i >= 0 && !c.inLine: // an earlier request with this token
		return c.adopt(ctx)
	case i < 0 && c.inLine:
		return nil, false, errSession
	case i < 0:
		i, contenders = len(contenders), append(contenders, line.Contender{Mode: c.req.Mode})
	case c.view.entries[i].session != c.s.id && c.view.holds(c.view.entries[i]):
		return c.adopt(ctx)
	case c.view.entries[i].session != c.s.id: // the place of an earlier session, which ends soon
		return nil, false, errSession
	case c.view.holds(c.view.entries[i]): // an answer went missing
		return c.confirmed(ctx, c.view.lock.Session, c.view.fence(c.view.entries[i]))
	}
	c.decision = line.Decide(contenders, i)
	if p := c.decision.Conflict; p >= 0 {
		return nil, false, fmt.Errorf("%w: %d slots asked for, but the lock has %d now", backend.ErrInvalid, c.req.Mode.N, contenders[p].Mode.N)
	}
	if !c.decision.Admitted {
		return nil, false, &backend.BusyError{Holders: c.view.holders(), Ahead: c.decision.Ahead}
	}
	return c.pass(ctx)
}

// adopt finds the hold that an earlier request with the same token has got.
func (c *contender) adopt(ctx context.Context) (backend.Hold, bool, error) {
	v, err := c.b.look(ctx, c.keys)
	if err != nil {
		return nil, false, err
	}
	e := v.find(c.req.Token)
	if e == nil { // it is gone again
		return nil, false, errSession
	}
	if !v.holds(e) || e.rec.Mode != c.req.Mode {
		return nil, false, fmt.Errorf("%w: the token %s stands in line already", backend.ErrInvalid, c.req.Token)
	}
	if c.s.id != e.session {
		_ = c.b.destroySession(ctx, c.s.id)
	}
	h := c.b.found(c.keys, v, e)
	h.detached = c.req.Detached
	sent := c.b.clock()
	if err := c.b.renewSession(ctx, h.session); err != nil {
		return nil, false, err
	}
	if _, _, err := h.check(ctx); err != nil { // which renews the group's session
		return nil, false, err
	}
	h.lease = h.leaseOf(sent, h.session.ttl)
	h.watch()
	return h, false, nil
}

// pass passes the gate. It reports true when that has to be looked at again.
func (c *contender) pass(ctx context.Context) (backend.Hold, bool, error) {
	if c.short() {
		waiting := c.s
		if err := c.begin(ctx, c.req.TTL); err != nil {
			return nil, false, err
		}
		full := c.s
		c.s = waiting
		defer func() {
			if c.s != full {
				_ = c.b.destroySession(ctx, full.id)
			}
		}()
		return c.passAs(ctx, full)
	}
	return c.passAs(ctx, c.s)
}

// passAs passes the gate with that session, which may be another than the one in line.
func (c *contender) passAs(ctx context.Context, s *session) (backend.Hold, bool, error) {
	rec := c.filled()
	st, err := c.b.enter(ctx, c.view, s, rec)
	if errors.Is(err, errGate) {
		c.closed, c.polls = true, 0
		return nil, false, &backend.BusyError{Holders: c.view.holders()}
	} else if err != nil {
		return nil, false, err
	}
	entry := c.keys.entry()
	switch {
	case s != c.s:
		st.ops = append(st.ops, swap(entry, c.s.id, s.id, rec)...)
		st.ends = append(st.ends, c.s.id)
	case !c.inLine || c.req.Mode.Kind != backend.Exclusive:
		st.ops = append(st.ops, sessionOp(api.KVLock, entry, s.id, rec))
	}
	c.unsure = true
	r, err := c.b.do(ctx, st)
	if err != nil {
		return nil, false, err
	}
	switch c.unsure = r.ok; {
	case r.session:
		return nil, false, errSession
	case !r.ok && !r.delayed: // somebody was faster
		return nil, true, nil
	case !r.ok: // nothing tells of its end
		c.closed, c.polls = true, c.polls+1
		return nil, false, &backend.BusyError{Holders: c.view.holders()}
	}
	c.s, c.inLine = s, true
	lock := r.at(c.keys.lock())
	switch {
	case c.req.Mode.Kind == backend.Exclusive:
		return c.granted(lock.ModifyIndex), false, nil
	case st.made != nil: // after our own, and so lasts as long
		return c.granted(r.at(entry).ModifyIndex), false, nil
	}
	return c.confirmed(ctx, lock.Session, r.at(entry).ModifyIndex)
}

// confirmed is the hold of a lock that was taken, once the session that has .lock for a
// group lasts as long as our lease. It reports true when the group has got another one.
func (c *contender) confirmed(ctx context.Context, group string, fence uint64) (backend.Hold, bool, error) {
	if c.req.Mode.Kind == backend.Shared {
		if err := c.b.renewSession(ctx, &session{id: group}); errors.Is(err, backend.ErrLost) {
			return nil, true, nil
		} else if err != nil {
			return nil, false, err
		}
	}
	return c.granted(fence), false, nil
}

// granted is the hold of a lock that was taken.
func (c *contender) granted(fence uint64) *hold {
	h := &hold{
		b: c.b, keys: c.keys, mode: c.req.Mode, ttl: c.s.ttl, grace: c.s.delay, fence: fence, detached: c.req.Detached, session: c.s,
	}
	h.lease = h.leaseOf(c.s.since(), c.s.ttl)
	h.waited, h.passed = c.view != nil, c.passed.Times
	h.watch()
	return h
}
