package mysql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
)

const (
	longWait = time.Hour              // of one statement; the server may not know longer ones
	nap      = time.Second            // between two looks at a holder that has no gate
	soon     = 2 * time.Millisecond   // after a lease's end
	manyLow  = 8                      // holders of slots whose gates are watched at once
	pulse    = 500 * time.Millisecond // the shortest heartbeat
	slowest  = 20 * time.Second       // the longest
)

// wait stands in line until the lock is ours: before the door until it opens, and as
// the head of the line until a holder leaves.
func (c *contender) wait(ctx context.Context) (backend.Hold, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	since := c.seen.now
	var gone string // the holder whose gate we have found open
	for pause := firstPause; ; {
		if err := c.stand(ctx, since, &gone, cancel); err != nil {
			switch {
			case ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case contended(err):
				c.hear()
			case !passing(err), c.silent() >= serviceLimit:
				return nil, err
			default:
				if err := sleep(ctx, pause); err != nil {
					return nil, err
				}
				pause = min(2*pause, lastPause)
			}
			if c.s != nil && c.s.broken {
				c.drop()
				continue
			}
		} else {
			pause = firstPause
		}
		h, err := c.ask(ctx)
		if busy := (*backend.BusyError)(nil); !errors.As(err, &busy) || !c.req.Waits(busy.Holders) {
			return h, err
		}
	}
}

// prepare does what can be done before it is our turn.
func (c *contender) prepare(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, tryLimit)
	defer stop()
	if err := c.connect(ctx); err != nil {
		return err
	}
	if c.s.id == 0 {
		v, err := c.s.one(ctx, "SELECT CONNECTION_ID()")
		if err == nil {
			err = c.s.identify(v.natural(0))
		}
		if err != nil {
			return err
		}
	}
	if c.pins() {
		return c.s.refuseClusters(ctx)
	}
	return nil
}

// stand blocks until it is worth while to ask again.
func (c *contender) stand(ctx context.Context, since record.Time, gone *string, cancel context.CancelCauseFunc) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	c.blocked = true
	stop := c.watch(ctx, cancel)
	defer stop()
	var err error
	began := c.b.clock()
	note := c.note(since)
	switch waitFor := c.gated(*gone); {
	case !c.head:
		err = c.block(ctx, "SELECT "+note+" GET_LOCK(?, ?)", c.id.door, longWait.Seconds())
		c.head = err == nil
		if errors.Is(err, errNotYet) {
			err = nil
		}
	case waitFor != nil:
		*gone = waitFor.Token
		stop := c.watchOthers(ctx, waitFor)
		err = c.block(ctx, "SELECT "+note+" GET_LOCK(?, ?)", gate(waitFor.Token), c.untilEnd().Seconds())
		stop()
		if errors.Is(err, errNotYet) {
			*gone, err = "", nil
		} else if err == nil {
			err = c.awaitRow(ctx)
		}
	default:
		_, err = c.s.query(ctx, "SELECT "+note+" RELEASE_LOCK(?), SLEEP(?)", gate(*gone), min(nap, c.untilEnd()).Seconds())
		*gone = ""
	}
	if err != nil {
		return err
	}
	c.blocked = false
	c.hear()
	if !c.head && c.b.clock().Sub(began) < firstPause {
		return sleep(ctx, firstPause) // the server's clock is being set
	}
	return nil
}

// awaitRow waits for a change of the row that is not durable yet: a holder opens its gate
// in the statement that frees the row, and until that is done one reads it as it was.
func (c *contender) awaitRow(ctx context.Context) error {
	_, err := c.s.query(ctx, "SELECT version FROM "+table+byKey+" LOCK IN SHARE MODE", c.id.ns, c.id.name)
	return err
}

// errNotYet is GET_LOCK's 0: its time is over, by a clock that may have been set.
var errNotYet = errors.New("not yet")

// block waits for a named lock. There are three answers: 1 is ours, 0 is to look
// again, and NULL is an error, never a success.
func (c *contender) block(ctx context.Context, statement, name string, seconds float64) error {
	v, err := c.s.one(ctx, statement, name, fmt.Sprintf("%.3f", seconds))
	switch {
	case err != nil:
		return err
	case v.null(0):
		return &opError{msg: c.b.opts.address() + " could not wait for a named lock (GET_LOCK answered NULL)",
			kind: backend.ErrUnavailable, err: errNotYet, answered: true}
	case v.number(0) != 1:
		return errNotYet
	}
	return nil
}

// gated is a holder whose gate is worth waiting for: a run's that was not just found
// open. Others are looked at now and then.
func (c *contender) gated(gone string) *record.Holder {
	if c.seen == nil {
		return nil
	}
	for i := range c.seen.Holders {
		if h := &c.seen.Holders[i]; h.Owner.Kind == backend.Run && !h.Tail && h.Token != gone {
			return h
		}
	}
	return nil
}

// untilEnd is when the first of the leases ends, at least a little from now. A hold that
// lives on after its time, or ends with its connection, says nothing of its end.
func (c *contender) untilEnd() time.Duration {
	d := longWait
	for _, h := range c.seen.Holders {
		if h.Expires != 0 {
			d = min(d, h.Expires.Sub(c.seen.now)+soon)
		}
	}
	return max(d, 10*time.Millisecond)
}

// watchOthers waits for the gates of the other holders, where any one that leaves makes
// room, and wakes the session then: each on a connection of its own.
func (c *contender) watchOthers(ctx context.Context, first *record.Holder) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	if c.req.Mode.Kind == backend.Slots {
		for _, h := range c.seen.Holders[:min(len(c.seen.Holders), manyLow)] {
			if h.Token != first.Token && h.Mode == c.req.Mode {
				all.Go(func() { c.b.wakeAt(ctx, h.Token, c.s.id, c.untilEnd()) })
			}
		}
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// wakeAt waits for the gate of a holder, and then ends the statement of a connection.
func (b *Backend) wakeAt(ctx context.Context, token string, thread uint64, limit time.Duration) {
	s, err := b.connect(ctx)
	if err != nil {
		return // the head looks again in any case
	}
	defer func() {
		thread := s.thread()
		s.close()
		if ctx.Err() != nil { // it may still wait on the server
			b.end(thread)
		}
	}()
	v, err := s.one(ctx, "SELECT GET_LOCK(?, ?)", gate(token), fmt.Sprintf("%.3f", limit.Seconds()))
	if err == nil && v.number(0) == 1 {
		_, _ = s.exec(ctx, "DO RELEASE_LOCK(?)", gate(token)) // it may come back
		_ = s.kill(ctx, "QUERY", thread)
	}
}

// end ends a connection of ours on the server.
func (b *Backend) end(thread uint64) {
	ctx, cancel := context.WithTimeout(context.Background(), withdrawLimit)
	defer cancel()
	if s, err := b.session(ctx); err == nil {
		_ = s.kill(ctx, "CONNECTION", thread)
		b.park(s)
	}
}

// watch looks, from another connection, whether the server still knows the one that
// waits: its answer may never come. It ends a wait that has lost its connection, and
// one whose server has not answered for too long.
func (c *contender) watch(ctx context.Context, giveUp context.CancelCauseFunc) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	s, every := c.s, max(pulse, min(c.req.TTL/2, slowest))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, every) == nil {
			known, err := c.b.knows(ctx, s.id)
			switch {
			case ctx.Err() != nil:
			case err == nil && !known:
				_ = s.wire.Close() // the wait fails, and joins the line again
				return
			case err == nil || answered(err):
				c.hear()
			case c.silent() >= serviceLimit:
				giveUp(err)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// knows tells whether the server has a connection.
func (b *Backend) knows(ctx context.Context, thread uint64) (known bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	err = b.with(ctx, func(s *session) error {
		v, err := s.one(ctx, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = ?", thread)
		known = err == nil && v.number(0) > 0
		return err
	})
	return known, err
}
