package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
	"github.com/dlock/dlock/internal/boottime"
)

const (
	tryLimit      = 3 * time.Second        // of one request, when it is made again after that
	serviceLimit  = 60 * time.Second       // how long a wait goes on while the service does not work
	firstLimit    = 300 * time.Millisecond // that the first request gets in any case
	crowdLimit    = 2 * time.Second        // how long -n tries again while others are in the way
	firstPause    = 50 * time.Millisecond
	lastPause     = time.Second
	withdrawLimit = time.Second
)

// contender is one wish for a lock, from its start until it is granted or given up.
type contender struct {
	b   *Backend
	req backend.Request
	id  lockID

	s          *session // nil while there is none
	head       bool     // the session has the door
	seen       *state   // the lock as it was when it was busy
	blocked    bool     // a statement of the session may wait on the server
	unanswered bool     // the row may be ours
	left       []uint64 // connections that were given up, and may yet do what they were told
	answered   atomic.Int64
	settled    map[string]boottime.Instant // when the command of a lost holder has ended
}

// Acquire takes the lock, or waits in line for it.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Hold, error) {
	if uuid.Validate(req.Token) != nil || !req.Mode.Valid() {
		return nil, fmt.Errorf("%w: token %q, mode %q", backend.ErrInvalid, req.Token, req.Mode)
	}
	id, err := b.lock(req.Name)
	if err != nil {
		return nil, err
	}
	if why := b.Limits().NoDetached; req.Detached && why != "" {
		return nil, fmt.Errorf("%w: %s", backend.ErrUnsupported, why)
	}
	c := &contender{b: b, req: req, id: id}
	c.hear()
	h, err := c.acquire(ctx)
	if err != nil {
		c.withdraw()
		return nil, err
	}
	return h, nil
}

// pins tells whether the lock is held by a transaction that stays open. Shared and
// slots holds are leases in each mode: a row can be locked for one alone.
func (c *contender) pins() bool {
	return c.b.opts.Mode == Pessimistic && c.req.Mode.Kind == backend.Exclusive
}

func (c *contender) owner() backend.Owner {
	o := c.req.Owner
	if o.Kind = backend.Run; c.req.Detached {
		o.Kind = backend.Detached
	}
	return o
}

func (c *contender) acquire(ctx context.Context) (backend.Hold, error) {
	first, cancel := atLeast(ctx, firstLimit)
	defer cancel()
	h, err := c.ask(first)
	if busy := (*backend.BusyError)(nil); !errors.As(err, &busy) || !c.req.Waits(busy.Holders) {
		return h, err
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

// hear notes that the service has done its work.
func (c *contender) hear() { c.answered.Store(int64(c.b.clock())) }

// silent is how long the service has not.
func (c *contender) silent() time.Duration {
	return c.b.clock().Sub(boottime.Instant(c.answered.Load()))
}

// ask asks for the lock until the service answers, and again while others were in the
// way. A contender that does not wait asks once, or for a moment in a crowd.
func (c *contender) ask(ctx context.Context) (backend.Hold, error) {
	began := c.b.clock()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		h, err := c.try(ctx)
		switch {
		case contended(err):
			c.hear()
			pause = time.Millisecond + rand.N(10*time.Millisecond)
			if c.req.NoWait && (number(err) == lockWait || number(err) == 3572 || c.b.clock().Sub(began) > crowdLimit) {
				return nil, c.rowIsLocked(ctx, err)
			}
		case err == nil, !passing(err), c.req.NoWait, c.silent() >= serviceLimit:
			return h, err
		}
		if cause := sleep(ctx, pause); cause != nil && contended(err) {
			return nil, cause
		} else if cause != nil {
			return nil, givenUp(err, cause)
		}
	}
}

// sleep waits, or fails with the reason for which ctx has ended.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// try makes one attempt, with a session and a table if they are missing.
func (c *contender) try(ctx context.Context) (h backend.Hold, err error) {
	whole := ctx
	if !c.req.NoWait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tryLimit)
		defer cancel()
	}
	if err := c.connect(ctx); err != nil {
		return nil, c.ended(whole, err)
	}
	h, err = c.attempt(ctx)
	if number(err) == noSuchTable {
		if err = c.s.create(ctx); err == nil {
			h, err = c.attempt(ctx)
		}
	}
	busy := (*backend.BusyError)(nil)
	switch {
	case err == nil, errors.As(err, &busy):
		c.hear()
	case !answered(err) && c.s != nil && c.s.broken:
		c.drop()
	}
	return h, c.ended(whole, err)
}

// ended puts the cause for which ctx has ended beside a failure.
func (c *contender) ended(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && passing(err) {
		return givenUp(err, context.Cause(ctx))
	}
	return err
}

func (c *contender) connect(ctx context.Context) (err error) {
	if c.s == nil {
		c.s, err = c.b.session(ctx)
	}
	return err
}

// drop gives up a session, whose last statement may yet be carried out.
func (c *contender) drop() {
	if c.s == nil {
		return
	}
	if c.blocked || c.unanswered {
		c.left = append(c.left, c.s.thread())
	}
	c.s.close()
	c.s, c.head, c.blocked = nil, false, false
}

// rowIsLocked is what a contender that does not wait says when somebody else keeps a
// lock on the row.
func (c *contender) rowIsLocked(ctx context.Context, err error) error {
	if c.s == nil || c.s.broken {
		return err
	}
	st, readErr := c.s.read(ctx, c.id)
	if readErr != nil {
		return readErr
	}
	waiting, readErr := c.s.waiters(ctx, c.id.door)
	if readErr != nil {
		return readErr
	}
	st.Holders = slices.DeleteFunc(st.Holders, func(h record.Holder) bool { return h.Token == c.req.Token })
	busy := &backend.BusyError{Holders: st.dress(st.Status("", st.now).Holders), Ahead: len(waiting)}
	if len(busy.Holders) == 0 {
		busy.Holders = []backend.Holder{{Owner: backend.Owner{Kind: backend.Foreign}, Mode: backend.Mode{Kind: backend.Exclusive}, Held: -1}}
	}
	return busy
}

// withdraw leaves the line, and gives back a lock that was granted unnoticed. First the
// connections end whose statements may still be carried out: after that, whatever they
// did is done.
func (c *contender) withdraw() {
	if !c.blocked && !c.unanswered && len(c.left) == 0 {
		c.s.close()
		return
	}
	c.drop()
	ctx, cancel := context.WithTimeout(context.Background(), withdrawLimit)
	defer cancel()
	// If this fails, one lease is left, which ends by itself.
	for pause := firstPause / 5; c.takeBack(ctx) != nil; pause *= 2 {
		if sleep(ctx, pause) != nil {
			return
		}
	}
}

func (c *contender) takeBack(ctx context.Context) error {
	return c.b.with(ctx, func(s *session) error {
		for _, thread := range c.left {
			if err := s.kill(ctx, "CONNECTION", thread); err != nil {
				return err
			}
			if err := s.awaitGone(ctx, thread); err != nil {
				return err
			}
		}
		err := s.change(ctx, c.id, c.req.Token, func(st *state) error { return st.release(c.req.Token) })
		if errors.Is(err, backend.ErrLost) { // it was not ours
			return nil
		}
		return err
	})
}

// release ends a hold, whatever the clock says.
func (st *state) release(token string) error {
	n := len(st.Holders)
	st.Holders = slices.DeleteFunc(st.Holders, func(h record.Holder) bool { return h.Token == token && !h.Tail })
	if len(st.Holders) == n {
		return backend.ErrLost
	}
	return nil
}

// thread is the server's number of the connection, as far as it is known.
func (s *session) thread() uint64 {
	if s.id != 0 {
		return s.id
	}
	return uint64(s.wire.thread)
}
