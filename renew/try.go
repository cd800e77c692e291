package renew

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

const (
	// maxTries bounds the renewals that are on their way at the same time; more than
	// one are only when those before have outlived their timeout.
	maxTries = 3
	// firstPause comes after the first failure; it doubles up to lastPause, or up to a
	// quarter of the renewal interval where that is less.
	firstPause = 50 * time.Millisecond
	lastPause  = time.Second
)

// try is one renewal on its way.
type try struct {
	timeout time.Duration
	overdue boottime.Instant
}

// answer is how a try ended.
type answer struct {
	try   *try
	lease backend.Lease
	err   error
}

// tries is the state of the renewals; only the keeper's goroutine touches it.
type tries struct {
	answers  chan answer      // has room for all that are on their way
	inFlight int              // those that hang included
	current  *try             // the one that is in its time; nil between tries
	due      boottime.Instant // when the next may start; zero if none is wanted
	pause    time.Duration    // after the next failure
	failure  error            // the last of a row of failures that tells most; nil while all goes well
}

func newTries(l backend.Lease) tries {
	return tries{answers: make(chan answer, maxTries), due: due(l), pause: firstPause}
}

// due is when l is to be renewed; zero if it needs no renewal.
func due(l backend.Lease) boottime.Instant {
	if every := interval(l); every > 0 {
		return l.Sent.Add(every)
	}
	return 0
}

// interval is the time between two renewals of l; zero if it needs none.
func interval(l backend.Lease) time.Duration {
	if l.Every > 0 {
		return l.Every
	}
	return l.TTL / 3
}

// wake is when the tries need attention next; zero if a clock tells nothing.
func (t *tries) wake() boottime.Instant {
	switch {
	case t.current != nil:
		return t.current.overdue
	case t.inFlight < maxTries:
		return t.due
	}
	return 0
}

// next is an answer that has come already, or nil.
func (t *tries) next() *answer {
	select {
	case a := <-t.answers:
		return &a
	default:
		return nil
	}
}

// proceed gives up waiting for a try that is overdue, and starts the one that is due.
func (k *Keeper) proceed(now boottime.Instant) {
	t := &k.tries
	if c := t.current; c != nil && now >= c.overdue {
		k.failed(now, noAnswer{c.timeout})
	}
	if t.current == nil && t.inFlight < maxTries && !t.due.IsZero() && now >= t.due {
		k.start(now)
	}
}

// start sends one renewal on its way. It gets the time until the next one would be
// due, but none in which its success would come too late.
func (k *Keeper) start(now boottime.Instant) {
	l := k.Lease()
	timeout := interval(l)
	if l.Ends() {
		timeout = min(timeout, l.StopAt(k.cfg.Grace).Sub(now))
	}
	c := &try{timeout: timeout, overdue: now.Add(timeout)}
	k.tries.current = c
	k.tries.inFlight++
	go func() {
		ctx, cancel := context.WithTimeout(k.ctx, timeout)
		defer cancel()
		lease, err := k.renewer.Renew(ctx)
		k.tries.answers <- answer{c, lease, err}
	}()
}

// heed takes in one answer, and returns the service's word that the hold has ended. An
// answer that comes after its time counts if it brings a later lease or a final no.
func (k *Keeper) heed(now boottime.Instant, a answer) error {
	k.tries.inFlight--
	inTime := a.try == k.tries.current
	if inTime {
		k.tries.current = nil
	}
	switch {
	case errors.Is(a.err, backend.ErrLost), errors.Is(a.err, backend.ErrRevoked):
		return a.err
	case a.err == nil && (inTime || later(a.lease, k.Lease())):
		k.renewed(now, a.lease)
	case a.err != nil && inTime:
		k.failed(now, a.err)
	}
	return nil
}

// renewed adopts the lease if it ends later than the present one, which no answer can
// shorten, and plans the next renewal by it.
func (k *Keeper) renewed(now boottime.Instant, l backend.Lease) {
	t := &k.tries
	if later(l, k.Lease()) {
		k.lease.Store(&l)
		k.cfg.OnLease(l)
	}
	if t.due = due(l); !t.due.IsZero() {
		t.due = max(t.due, now.Add(firstPause)) // whatever the lease says, not without a pause
	}
	t.pause = firstPause
	if t.failure != nil {
		t.failure = nil
		k.cfg.OnError(nil)
	}
}

// later tells whether a ends later than b.
func later(a, b backend.Lease) bool {
	if a.Ends() != b.Ends() {
		return b.Ends()
	}
	return a.Deadline() > b.Deadline()
}

// failed notes that the current try has come to nothing, and plans the next.
func (k *Keeper) failed(now boottime.Instant, err error) {
	t := &k.tries
	first := t.failure == nil
	if first || !silent(err) {
		t.failure = err
	}
	t.current = nil
	t.due = now.Add(t.pause)
	t.pause = min(2*t.pause, lastPause, max(interval(k.Lease())/4, firstPause/5))
	if first {
		k.cfg.OnError(err)
	}
}

// noAnswer is the failure of a try that was in vain for so long.
type noAnswer struct{ within time.Duration }

func (e noAnswer) Error() string { return fmt.Sprintf("no answer within %v", e.within) }
func (e noAnswer) Timeout() bool { return true }

// silent tells whether a failure says only that nothing was heard, and so less than
// whatever was heard before.
func silent(err error) bool {
	t := interface{ Timeout() bool }(nil)
	return errors.As(err, &t) && t.Timeout()
}
