package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

const (
	tryLimit      = 3 * time.Second        // of one request, when it is made again after that
	serviceLimit  = 60 * time.Second       // how long a wait goes on while the service does not work
	firstLimit    = 300 * time.Millisecond // that the first request gets in any case
	firstPause    = 50 * time.Millisecond
	lastPause     = time.Second
	withdrawLimit = 500 * time.Millisecond
	tombstone     = time.Minute // how long a withdrawn token stays dead
)

// contender is one wish for a lock, from its start until it is granted or given up.
type contender struct {
	b     *Backend
	req   backend.Request
	keys  lockKeys
	owner string

	unanswered bool             // the last take may yet arrive
	inLine     bool             // a place was asked for
	answered   boottime.Instant // when the service last did its work
	busy       reply            // the last answer that somebody else has the lock
}

// Acquire takes the lock, or waits in line for it.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Hold, error) {
	if uuid.Validate(req.Token) != nil || !req.Mode.Valid() {
		return nil, fmt.Errorf("%w: token %q, mode %q", backend.ErrInvalid, req.Token, req.Mode)
	}
	k, err := b.keys(req.Name, req.Token)
	if err != nil {
		return nil, err
	}
	owner, err := json.Marshal(req.Owner)
	if err != nil {
		return nil, fmt.Errorf("owner: %w", err)
	}
	c := &contender{b: b, req: req, keys: k, owner: string(owner), answered: b.clock()}
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
	h, err := c.ask(first, 0)
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

// ask asks for the lock, and for a place in line where place is above zero, until the
// service answers. A contender that does not wait asks once.
func (c *contender) ask(ctx context.Context, place time.Duration) (backend.Hold, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		h, err := c.take(ctx, place)
		if err == nil || !passing(err) || c.req.NoWait || c.b.clock().Sub(c.answered) >= serviceLimit {
			return h, err
		}
		select {
		case <-ctx.Done():
			return nil, givenUp(err, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// take sends one request for the lock.
func (c *contender) take(ctx context.Context, place time.Duration) (backend.Hold, error) {
	if !c.req.NoWait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tryLimit)
		defer cancel()
	}
	c.unanswered, c.inLine = true, c.inLine || place > 0
	sent := c.b.clock()
	r, err := c.b.runReplicated(ctx, takeScript, c.keys, c.req.Token, c.req.Name, c.owner, string(c.kind()),
		string(c.req.Mode.Kind), c.req.Mode.N, c.req.TTL.Milliseconds(), place.Milliseconds())
	if tooFewReplicas(err) {
		if r.status() == "held" {
			return nil, errors.Join(err, c.giveBack(ctx))
		}
		err = nil
	}
	if err != nil {
		c.unanswered = !answered(err)
		return nil, err
	}
	c.unanswered, c.answered = false, c.b.clock()
	if r.status() == "slots" {
		return nil, otherSlots(c.req.Mode, r)
	}
	if err := r.refusal(); err != nil {
		return nil, err
	}
	if r.status() == "busy" {
		c.busy = r
		return nil, &backend.BusyError{Holders: r.list(6).holders(), Ahead: int(r.number(2))}
	}
	return c.hold(sent, r), nil
}

// otherSlots is the error of a wish for another number of slots than the one in force.
func otherSlots(m backend.Mode, r reply) error {
	return fmt.Errorf("%w: %d slots asked for, but the lock has %d now", backend.ErrInvalid, m.N, r.number(2))
}

// giveBack ends a hold that does not count.
func (c *contender) giveBack(ctx context.Context) error {
	_, err := c.b.run(ctx, leaveScript, c.keys, c.req.Token, 0)
	c.unanswered = err != nil
	return err
}

func (c *contender) kind() backend.OwnerKind {
	if c.req.Detached {
		return backend.Detached
	}
	return backend.Run
}

// withdraw leaves the line, or gives back a lock that was granted unnoticed. A take
// that is still on its way will find its token withdrawn.
func (c *contender) withdraw() {
	if !c.unanswered && !c.inLine || !c.b.connected.Load() {
		return // nothing was ever sent
	}
	tomb := time.Duration(0)
	if c.unanswered {
		tomb = tombstone
	}
	ctx, cancel := context.WithTimeout(context.Background(), withdrawLimit)
	defer cancel()
	// If this fails too, a place in line or one lease is left, which ends by itself.
	_, _ = c.b.run(ctx, leaveScript, c.keys, c.req.Token, tomb.Milliseconds())
}

// hold turns an answer into the hold that it grants, with a lease from when it was
// asked for.
func (c *contender) hold(sent boottime.Instant, r reply) *hold {
	h := &hold{b: c.b, name: c.req.Name, keys: c.keys, token: c.req.Token, fence: r.fence(2), ttl: c.req.TTL}
	h.lease = h.leaseOf(sent, r)
	return h
}
