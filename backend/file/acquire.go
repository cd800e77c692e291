package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
	"github.com/dlock/dlock/internal/boottime"
)

// contender is one wish for a lock, from its start until it is granted or given up.
type contender struct {
	*lock
	req     backend.Request
	live    *os.File // locked as long as this contender lives; nil before it is needed
	public  *os.File // the kernel lock; nil until we have it
	granted record.Holder
	sent    boottime.Instant
}

// Acquire takes the lock, or waits for it: behind the turnstile, then for the
// kernel lock, then for what only the record says (detached holds, tails, slots).
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Hold, error) {
	if !isToken(req.Token) || !req.Mode.Valid() {
		return nil, fmt.Errorf("%w: token %q, mode %q", backend.ErrInvalid, req.Token, req.Mode)
	}
	l, err := b.create(req.Name)
	if err != nil {
		return nil, err
	}
	c := &contender{lock: l, req: req}
	err = c.try(ctx)
	if busy := (*backend.BusyError)(nil); errors.As(err, &busy) && c.req.Waits(busy.Holders) {
		if err = c.announce(busy); err == nil {
			err = c.wait(ctx)
		}
	}
	if err == nil {
		err = c.checkPlace()
	}
	if err != nil {
		c.abandon()
		return nil, err
	}
	return c.hold(), nil
}

func (c *contender) announce(busy *backend.BusyError) error {
	if c.req.Waiting == nil {
		return nil
	}
	return c.req.Waiting(backend.Wait{Holders: busy.Holders, Ahead: busy.Ahead})
}

// try takes the lock if nobody has it and nobody waits. All of it happens under the
// mutex, where a locked turnstile can only mean that there is a line.
func (c *contender) try(ctx context.Context) error {
	return c.change(ctx, func(s *state) error {
		err := c.tryKernel(s)
		if errors.Is(err, errWouldBlock) {
			err = c.busy(s)
		}
		if busy := (*backend.BusyError)(nil); errors.As(err, &busy) && c.req.Waits(busy.Holders) {
			return errors.Join(err, c.enlist())
		}
		return err
	})
}

func (c *contender) tryKernel(s *state) error {
	d, name := c.turnstileFile()
	turn, err := tryFlock(d, name, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock(turn)
	d, name = c.publicFile()
	if c.public, err = tryFlock(d, name, c.how()); err != nil {
		return err
	}
	if err := c.admit(s); err != nil {
		c.dropPublic()
		return err
	}
	return nil
}

// how is the kernel lock that the mode needs: slots share it, the record counts them.
func (c *contender) how() int {
	if c.req.Mode.Kind == backend.Exclusive {
		return unix.LOCK_EX
	}
	return unix.LOCK_SH
}

// admit enters the contender into the record, if the record lets it.
func (c *contender) admit(s *state) error {
	c.sent = boottime.Now()
	h, err := s.rec.Take(s.now, record.Claim{
		Token: c.req.Token, Mode: c.req.Mode, Owner: c.req.Owner,
		TTL: c.req.TTL, Leased: c.req.Detached, Seed: wallMicros(),
	})
	if err != nil {
		return err
	}
	if !c.req.Detached && c.live == nil {
		if err := c.openLive(); err != nil {
			return err
		}
	}
	c.granted = h
	return nil
}

// busy tells who is in the way of a contender that did not get the kernel lock.
func (c *contender) busy(s *state) error {
	holders := s.rec.Status(c.name, s.now).Holders
	if len(holders) == 0 {
		holders = c.foreignHolders()
	}
	return &backend.BusyError{Holders: holders, Ahead: len(c.waiters(s.rec))}
}

// wait goes through the line. The contender that has the turnstile is its head and
// keeps the kernel lock, once it has that, while it waits for the record.
func (c *contender) wait(ctx context.Context) error {
	d, name := c.turnstileFile()
	turn, err := waitFlock(ctx, d, name, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock(turn)
	d, name = c.publicFile()
	if c.public, err = waitFlock(ctx, d, name, c.how()); err != nil {
		return err
	}
	var w *watch // none before there is something to watch for: as a rule there is not
	for {
		var blockers []record.Holder
		err := c.change(ctx, func(s *state) error {
			blockers = slices.Clone(s.rec.Holders)
			return c.admit(s)
		})
		busy := (*backend.BusyError)(nil)
		if !errors.As(err, &busy) || !c.req.Waits(busy.Holders) {
			return err
		}
		if w == nil { // look again, now that no change is missed
			w = newWatch(c.state)
			defer w.close()
			continue
		}
		if err := c.waitChange(ctx, w, blockers); err != nil {
			return err
		}
	}
}

// waitChange waits until the record was replaced, one of the holders in it has come
// to its end, or its process has died: whichever is first.
func (c *contender) waitChange(ctx context.Context, w *watch, blockers []record.Holder) error {
	cause := errors.New("something changed")
	wait, wake := context.WithCancelCause(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer wake(cause) // runs first: nobody stays blocked
	for _, h := range blockers {
		if h.Expires != 0 {
			left := h.Expires.Sub(now()) + time.Millisecond
			timer := time.AfterFunc(min(left, longestNap), func() { wake(cause) })
			defer timer.Stop()
			continue
		}
		watchers.Go(func() {
			if c.awaitDeath(wait, h.Token) == nil {
				wake(cause)
			}
		})
	}
	select {
	case <-wait.Done():
		if err := context.Cause(wait); err != cause {
			return err
		}
	case <-w.changed:
	}
	return nil
}

// longestNap is how long the head of the line sleeps when an end is awaited: Go's
// timers stand still while the machine does, and the clock of leases does not.
const longestNap = time.Second

// awaitDeath blocks until no process has the contender's live file locked.
func (c *contender) awaitDeath(ctx context.Context, token string) error {
	d, name := c.liveFile(token)
	f, err := d.openFile(name, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil { // it counts as alive: look again later
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(longestNap):
			return nil
		}
	}
	defer f.Close()
	return flockContext(ctx, f, unix.LOCK_SH)
}

// abandon gives up whatever the contender had.
func (c *contender) abandon() {
	c.dropPublic()
	c.dropLive()
	c.close()
}

func (c *contender) dropPublic() {
	if c.public != nil {
		unlock(c.public)
		c.public = nil
	}
}

// hold turns the contender into what it was granted.
func (c *contender) hold() backend.Hold {
	if c.req.Detached {
		c.dropPublic()
		c.dropLive()
		lease := backend.Lease{Sent: c.sent, TTL: c.req.TTL, Every: c.req.TTL / 3}
		return &detached{lock: c.lock, token: c.req.Token, fence: c.granted.Fence, lease: lease}
	}
	return &hold{contender: c}
}
