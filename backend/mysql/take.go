package mysql

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
	"github.com/dlock/dlock/internal/boottime"
)

// takeStatement takes a row that is not there or free, in one step: the contender goes
// through the door, which must be open, takes the row and learns its fence, from the
// answer to this one statement. Nothing in it depends on the clock. In an assignment
// nothing refers to a column that was assigned before, whatever the sql_mode.
func takeStatement(expires string) string {
	free := func(column, value string) string { return column + " = IF(token = '', " + value + ", " + column + ")" }
	return "INSERT INTO " + table + " (ns, name, token, holders, version, fence, since, expires, ttl_us, updated_at) " +
		"SELECT ?, ?, ?, ?, LAST_INSERT_ID(" + nowMicro + "), " + nowMicro + ", " + now + ", " + expires + ", ?, " + now +
		" FROM DUAL WHERE " + enter + " = 1 AND " + enter + " = 1 ON DUPLICATE KEY UPDATE " +
		free("since", now) + ", " + free("expires", expires) + ", " + free("ttl_us", "?") + ", " + free("fence", "version + 1") + ", " +
		free("updated_at", forward) + ", " + free("version", "LAST_INSERT_ID(version + 1)") + ", " + free("holders", "?") + ", " + free("token", "?")
}

// When a row that was just taken expires; both take the same arguments.
const (
	leasedUntil = now + " + INTERVAL ? MICROSECOND"
	pinnedUntil = "IF(? = 0, NULL, " + never + ")"
)

// takeFree takes the row if it is free; nil if it is not, or if the door is closed.
func (c *contender) takeFree(ctx context.Context) (backend.Hold, error) {
	text, err := json.Marshal([]record.Holder{{
		Token: c.req.Token, Mode: c.req.Mode, Owner: c.owner(), TTL: c.req.TTL,
	}})
	if err != nil {
		return nil, fmt.Errorf("holder: %w", err)
	}
	expires, ttl, holders := leasedUntil, c.req.TTL.Microseconds(), string(text)
	if c.pins() {
		expires = pinnedUntil
	}
	g := gate(c.req.Token)
	c.unanswered = true
	sent := c.b.clock()
	r, err := c.s.exec(ctx, takeStatement(expires), c.id.ns, c.id.name, c.req.Token, holders, ttl, ttl,
		c.id.door, c.id.door, g, g, ttl, ttl, holders, c.req.Token)
	if err != nil {
		c.unanswered = !answered(err)
		return nil, err
	}
	c.unanswered = false
	if r.affected == 0 {
		return nil, nil
	}
	if r.affected == 1 {
		if err := c.s.checkShape(ctx, c.req.Token); err != nil {
			c.unanswered = true // it is ours, and must be given back
			return nil, err
		}
	}
	return c.won(ctx, sent, r.id, c.req.TTL)
}

// look goes through the door if it is open, and reads the row.
func (c *contender) look(ctx context.Context) (*state, error) {
	g := gate(c.req.Token)
	v, err := c.s.one(ctx, "SELECT "+columns+", "+enter+", "+enter+from, c.id.door, c.id.door, g, g, c.id.ns, c.id.name)
	if err != nil {
		return nil, err
	}
	if v.null(colsEnd) {
		return nil, fmt.Errorf("%w: %s could not use a named lock (GET_LOCK answered NULL)", backend.ErrUnavailable, c.b.opts.address())
	}
	c.head = v.number(colsEnd) == 1
	st, err := c.s.state(v)
	if err != nil {
		return nil, err
	}
	if err := c.s.judge(ctx, st, c.req.Token); err != nil {
		return nil, err
	}
	c.waitOut(st)
	return st, nil
}

// waitOut keeps a hold that has lost its connection alive for its TTL by our own clock
// too: the server's may be set meanwhile.
func (c *contender) waitOut(st *state) {
	for _, h := range st.settle {
		if c.settled == nil {
			c.settled = map[string]boottime.Instant{}
		}
		c.settled[h.Token] = c.b.clock().Add(h.TTL)
	}
	for i := range st.Holders {
		h := &st.Holders[i]
		if until := c.settled[h.Token]; c.b.clock() < until && h.Expires != 0 && !h.Tail {
			h.Expires = max(h.Expires, st.now.Add(min(time.Second, until.Sub(c.b.clock()))))
		}
	}
}

// attempt tries to take the lock as things stand. It fails with a *backend.BusyError
// where it cannot be had; then c.seen is how the lock was.
func (c *contender) attempt(ctx context.Context) (backend.Hold, error) {
	if c.pins() && c.req.NoWait {
		// A row that somebody else has locked is found out without waiting.
		if _, err := c.s.query(ctx, "SELECT version FROM "+table+byKey+" FOR UPDATE NOWAIT", c.id.ns, c.id.name); err != nil {
			return nil, err
		}
	}
	if c.req.Mode.Kind == backend.Exclusive && c.b.opts.Mode != Optimistic {
		if h, err := c.takeFree(ctx); h != nil || err != nil {
			return h, err
		}
	}
	for {
		sent := c.b.clock()
		st, err := c.look(ctx)
		if err != nil {
			return nil, err
		}
		c.seen = st
		h, written, err := c.enter(ctx, st)
		if err != nil {
			return nil, err
		}
		if written {
			return c.won(ctx, sent, h.Fence, c.granted(st, h))
		}
	}
}

// granted is how long the hold lasts from when the state was read.
func (c *contender) granted(st *state, h record.Holder) time.Duration {
	if h.Expires == 0 {
		return h.TTL
	}
	return h.Expires.Sub(st.now)
}

// enter takes the lock as it was read, by an update that compares. At a door that is
// closed only a request that was granted before, and is repeated, gets in.
func (c *contender) enter(ctx context.Context, st *state) (record.Holder, bool, error) {
	claim := record.Claim{
		Token: c.req.Token, Mode: c.req.Mode, Owner: c.owner(), TTL: c.req.TTL, Leased: !c.pins(), Seed: max(uint64(st.now), 1),
	}
	st.Expire(st.now)
	for _, h := range st.Holders {
		if h.Token == c.req.Token {
			h, err := st.Take(st.now, claim)
			return h, err == nil, err
		}
	}
	if !c.head {
		return record.Holder{}, false, c.atTheDoor(ctx, st, claim)
	}
	before := st.Fence
	st.Fence = max(st.Fence, st.row.version)
	h, err := st.Take(st.now, claim)
	busy, isBusy := err.(*backend.BusyError)
	if err != nil {
		st.Fence = before
		if !isBusy {
			return h, false, err
		}
		busy.Holders = st.dress(busy.Holders)
		if !st.edited {
			return h, false, busy
		}
		written, err := c.s.write(ctx, c.id, st)
		if err == nil && written {
			err = busy
		}
		return h, false, err
	}
	c.unanswered = true
	written, err := c.s.write(ctx, c.id, st)
	c.unanswered = err != nil && (!answered(err) || written)
	return h, written, err
}

// atTheDoor tells why a contender does not get in while somebody else is at the door: an
// exclusive holder, or the head of the line, or one who is just passing.
func (c *contender) atTheDoor(ctx context.Context, st *state, claim record.Claim) error {
	waiting, err := c.s.waiters(ctx, c.id.door)
	if err != nil {
		return err
	}
	_, err = st.Take(st.now, claim)
	busy, isBusy := err.(*backend.BusyError)
	switch {
	case err != nil && !isBusy:
		return err
	case isBusy:
		return &backend.BusyError{Holders: st.dress(busy.Holders), Ahead: len(waiting)}
	}
	st.Holders = st.Holders[:len(st.Holders)-1] // it was not granted after all
	if len(waiting) == 0 {
		return &opError{msg: c.b.opts.address() + ": somebody is at the door of this lock", kind: backend.ErrUnavailable,
			err: errTransient, answered: true, again: true}
	}
	return &backend.BusyError{Holders: st.dress(st.Status("", st.now).Holders), Ahead: len(waiting)}
}

// won makes a hold of what was granted to a request sent at that time.
func (c *contender) won(ctx context.Context, sent boottime.Instant, fence uint64, ttl time.Duration) (backend.Hold, error) {
	if c.pins() {
		c.unanswered = true // until the row is locked as well
		h, err := c.pin(ctx, fence)
		c.unanswered = err != nil
		return h, err
	}
	h := &hold{b: c.b, lock: c.id, token: c.req.Token, mode: c.req.Mode, fence: fence, ttl: c.req.TTL}
	h.lease = backend.Lease{Sent: sent, TTL: ttl, Every: c.req.TTL / 3}
	s := c.s
	c.s, c.head = nil, false
	switch {
	case c.req.Detached: // it has nobody behind it
		s.close()
		return h, nil
	case c.req.Mode.Kind != backend.Exclusive:
		if _, err := s.exec(ctx, "DO RELEASE_LOCK(?)", c.id.door); err != nil {
			s.close() // so does this, and a renewal opens another
		}
	}
	h.keep(s)
	return h, nil
}
