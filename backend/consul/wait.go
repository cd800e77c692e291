package consul

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
)

const (
	firstPoll = 50 * time.Millisecond // of a gate that a lock-delay keeps closed, whose end nobody tells
	lastPoll  = 500 * time.Millisecond
	shortest  = 10 * time.Second // of a blocking query
)

// wait stands in line until the lock is ours. Before each sleep it has looked at the
// lock; it is woken by what has to change before it can be its turn.
func (c *contender) wait(ctx context.Context) (backend.Hold, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for {
		err := c.sleep(ctx)
		if err != nil && !passing(err) {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, c.over(ctx, err)
		}
		if c.passed.To != "" {
			return c.granted(c.passed.index), nil
		}
		h, err := c.ask(ctx)
		busy := (*backend.BusyError)(nil)
		if !errors.As(err, &busy) || !c.req.Waits(busy.Holders) {
			return h, err
		}
	}
}

// over is why a wait has ended. If the service was in trouble then, that is told, too.
func (c *contender) over(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx)) {
		err = c.trouble
	}
	if err != nil {
		return givenUp(err, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

// sleep waits until there is a reason to look again, and keeps the session alive.
func (c *contender) sleep(ctx context.Context) error {
	sleeping, wake := context.WithCancel(ctx)
	defer wake()
	kept := make(chan error, 1)
	go func() {
		kept <- c.keep(sleeping)
		wake()
	}()
	err := c.listen(sleeping)
	wake()
	gone := <-kept
	if errors.Is(gone, errSession) {
		c.restart()
	}
	if gone != nil && ctx.Err() == nil {
		return gone
	}
	if sleeping.Err() != nil && ctx.Err() == nil && errors.Is(err, context.Canceled) { // keep has woken us
		return nil
	}
	return err
}

// keep renews the session while the contender waits. Its connection is given up each
// time: an agent lets a host have only so many.
func (c *contender) keep(ctx context.Context) error {
	s := c.s
	var trouble error
	for {
		pause := s.since().Add(s.ttl / 2).Sub(c.b.clock())
		if trouble != nil {
			pause = max(pause, min(s.ttl/10, lastPause))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(0, pause)):
		}
		try, cancel := context.WithTimeout(ctx, tryLimit)
		trouble = c.b.renewSession(try, s)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(trouble, backend.ErrLost):
			return errSession
		case trouble == nil:
			c.trouble, c.answered = nil, c.b.clock()
			if made, err := c.b.client(); err == nil {
				made.transport.CloseIdleConnections()
			}
		case !passing(trouble):
			return trouble
		case c.b.clock().Sub(c.answered) >= max(serviceLimit, c.req.TTL):
			return givenUp(trouble, errServiceLimit)
		default:
			c.trouble = trouble
		}
	}
}

var errServiceLimit = errors.New("the lock service has not answered for too long")

// listen blocks until what stands in our way has changed.
func (c *contender) listen(ctx context.Context) error {
	d := max(c.req.TTL, shortest)
	switch {
	case c.closed:
		c.closed = false
		return c.listenGate(ctx, d)
	case len(c.decision.Watch) == 1:
		p := c.view.entries[c.decision.Watch[0]].pair
		pairs, _, err := c.b.block(ctx, p.Key, false, p.ModifyIndex, d)
		c.head = err == nil && len(pairs) == 0 && c.decision.Watch[0] == 0
		c.passed = passedTo(pairs, c.s.id)
		c.quick = c.head
		return c.pauseAfter(ctx, err)
	}
	return c.listenTree(ctx, c.keys.line, d, c.view.pairs())
}

// listenGate waits for who has the lock by other means than ours. When nobody has it, a
// lock-delay stands in the way, and only a look now and then tells of its end.
func (c *contender) listenGate(ctx context.Context, d time.Duration) error {
	v := c.view
	if v.lock == nil || v.lock.Session == "" && c.polls > 0 {
		pause := min(firstPoll<<min(c.polls, 10), lastPoll)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
			return nil
		}
	}
	if v.sem != nil {
		pairs := []*api.KVPair{v.lock}
		for _, p := range v.contenders {
			pairs = append(pairs, p)
		}
		return c.listenTree(ctx, c.keys.gate, d, pairs)
	}
	_, _, err := c.b.block(ctx, v.lock.Key, false, v.lock.ModifyIndex, d)
	return c.pauseAfter(ctx, err)
}

// listenTree waits for any change below a prefix. Its index may be above that of all
// its keys when something was deleted, so that the first query may return at once.
func (c *contender) listenTree(ctx context.Context, prefix string, d time.Duration, pairs []*api.KVPair) error {
	index := c.seen[prefix]
	for _, p := range pairs {
		index = max(index, p.ModifyIndex)
	}
	_, last, err := c.b.block(ctx, prefix, true, index, d)
	if err == nil {
		c.seen[prefix] = last
		if last < index { // the server's data are other ones
			c.seen[prefix] = 0
		}
	}
	return c.pauseAfter(ctx, err)
}

// pauseAfter keeps a query that fails at once from being repeated without end.
func (c *contender) pauseAfter(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(lastPoll):
	}
	return err
}

func (v *view) pairs() (list []*api.KVPair) {
	for _, e := range v.entries {
		list = append(list, e.pair)
	}
	return list
}
