package redlock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/redis"
)

const (
	firstPoll = 50 * time.Millisecond // of a lock that another program has, which gives no sign
	lastPoll  = 250 * time.Millisecond
	// unheardPause is when a waiter whose subscriptions are not there yet asks without them.
	unheardPause = 500 * time.Millisecond

	soon = 2 * time.Millisecond // after a lease's end, by a clock that may run a little slow
)

// word is what one server tells a waiter.
type word struct {
	seat int
	redis.Notice
}

// wait stands in line until the lock is ours. It asks again when a majority of the servers
// have called it, and before its place ends; the head of the line also when the present
// lease ends, or now and then where another program has the lock.
func (c *contender) wait(ctx context.Context) (*hold, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	words := make(chan word)
	for i, n := range c.b.nodes {
		if err := n.Listen(ctx, c.claim.Name, c.claim.Token, func(heard redis.Notice) {
			select {
			case words <- word{i, heard}:
			case <-ctx.Done():
			}
		}); err != nil {
			return nil, err
		}
	}
	w := waitTimer{Timer: time.NewTimer(unheardPause), place: c.req.TTL}
	defer w.Stop()
	c.claim.Place, c.claim.Ticket = c.req.TTL, c.busy.ticket+1
	called, deaf := map[int]bool{}, map[int]error{}
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-w.C:
		case e := <-words:
			if e.Err != nil {
				if deaf[e.seat] = e.Err; finals(deaf) >= c.b.veto() {
					return nil, c.b.refusal(values(deaf))
				}
				continue
			}
			delete(deaf, e.seat)
			if e.Head && (e.Why != redis.Tail || !c.req.TailIsBusy) {
				w.head(e.Left, e.Why)
				continue
			}
			if called[e.seat] = true; len(called) < c.b.majority() {
				continue
			}
		}
		clear(called)
		h, err := c.ask(ctx)
		if busy := (*backend.BusyError)(nil); !errors.As(err, &busy) || !c.req.Waits(busy.Holders) {
			return h, err
		}
		w.busy(c.busy)
	}
}

// finals counts the errors that will stay.
func finals(errs map[int]error) (n int) {
	for _, err := range errs {
		if !redis.Passing(err) {
			n++
		}
	}
	return n
}

func values(errs map[int]error) (list []error) {
	for _, err := range errs {
		list = append(list, err)
	}
	return list
}

// waitTimer says when to ask without having been called.
type waitTimer struct {
	*time.Timer
	place time.Duration // how long a place in line lasts
	poll  time.Duration // the present pause between polls; 0: no polling
}

// busy sets the timer after an answer.
func (w *waitTimer) busy(r busy) {
	if r.first {
		w.head(r.left, r.why)
		return
	}
	w.poll = 0
	w.Reset(w.heartbeat())
}

// head sets the timer of the head of the line.
func (w *waitTimer) head(left time.Duration, why string) {
	switch {
	case why == redis.Foreign:
		w.poll = min(max(2*w.poll, firstPoll), lastPoll)
		left = w.poll/2 + rand.N(w.poll/2) // not in step with others who poll
	case left < 0: // it does not end by itself, which ours do
		w.poll, left = 0, time.Second
	default:
		w.poll, left = 0, left+soon
	}
	w.Reset(min(left, w.heartbeat()))
}

// heartbeat is when the place has to be renewed: not all at the same time.
func (w *waitTimer) heartbeat() time.Duration {
	return w.place/2 - rand.N(w.place/20)
}
