package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/dlock/dlock/backend"
)

const (
	firstPoll = 50 * time.Millisecond // of a lock that another program has, which gives no sign
	lastPoll  = 250 * time.Millisecond
	// A subscription may break this moment. One that is unheard whenever it is made anew
	// is one that the server or a proxy does not serve.
	unheardLimit = 5

	soon = 2 * time.Millisecond // after a lease's end, by a clock that may run a little slow
)

// Why the head of the line waits, in the words of the scripts.
const (
	behindForeign = "foreign"
	behindTail    = "tail"
)

// wait stands in line until the lock is ours. It asks again when it was offered the
// lock, when its subscription is new, and before its place ends; the head of the line
// also when the present lease ends, or now and then where another program has the lock.
func (c *contender) wait(ctx context.Context) (backend.Hold, error) {
	l := c.b.listen(ctx, c.keys, c.req.Token, c.busy.number(5) == 1)
	defer l.close()
	w := waitTimer{Timer: time.NewTimer(serviceLimit), place: c.req.TTL}
	defer w.Stop()
	for unheard := 0; ; {
		ask, fresh := false, false
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-w.C:
			ask = true
		case e := <-l.events:
			switch fresh = e.fresh; {
			case e.err != nil && !passing(e.err):
				return nil, e.err
			case e.err != nil && c.b.clock().Sub(c.answered) >= max(serviceLimit, c.req.TTL):
				return nil, e.err
			case e.err != nil:
			case e.head && (e.why != behindTail || !c.req.TailIsBusy):
				w.head(e.left, e.why)
			default:
				ask = true
			}
		}
		if !ask {
			continue
		}
		h, err := c.ask(ctx, c.req.TTL)
		busy := (*backend.BusyError)(nil)
		switch {
		case errors.Is(err, errUnheard) && unheard < unheardLimit:
			if fresh {
				unheard++
			}
			l.renew()
			w.Reset(lastPause)
		case errors.As(err, &busy) && c.req.Waits(busy.Holders):
			unheard = 0
			w.busy(c.busy)
		default:
			return h, err
		}
	}
}

// waitTimer says when to ask without having been called.
type waitTimer struct {
	*time.Timer
	place time.Duration // how long a place in line lasts
	poll  time.Duration // the present pause between polls; 0: no polling
}

// busy sets the timer after an answer.
func (w *waitTimer) busy(r reply) {
	if first := r.number(2) == 0; first {
		w.head(r.ms(3), r.text(4))
		return
	}
	w.poll = 0
	w.Reset(w.heartbeat())
}

// head sets the timer of the head of the line.
func (w *waitTimer) head(left time.Duration, why string) {
	switch {
	case why == behindForeign:
		w.poll = min(max(2*w.poll, firstPoll), lastPoll)
		left = w.poll
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

// notice is what a waiter hears.
type notice struct {
	fresh bool          // the subscription is new: what was sent before was not heard
	head  bool          // it is the head of the line, and should look after left
	left  time.Duration // below zero: no end is known
	why   string
	err   error // the subscription failed; it is being renewed
}

// parseNotice reads a message of a script. One that is none is taken for a call.
func parseNotice(s string) notice {
	words := strings.Fields(s)
	if len(words) != 3 || words[0] != "h" {
		return notice{}
	}
	ms, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return notice{}
	}
	return notice{head: true, left: time.Duration(ms) * time.Millisecond, why: words[2]}
}
