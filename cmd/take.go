package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
)

// waitForServiceNow is how long --no-wait waits for a service that does not answer.
const waitForServiceNow = 5 * time.Second

// errWaitOver ends a wait at its limit.
var errWaitOver = errors.New("the wait is over")

// take acquires the lock of req and turns what stands in the way into words. It
// listens to signals as long as it takes.
func (a *app) take(b backend.Backend, req backend.Request, f *lockFlags, signals <-chan os.Signal) (backend.Hold, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if f.waitSet && !f.noWait {
		timer := time.AfterFunc(time.Duration(f.wait), func() { cancel(errWaitOver) })
		defer timer.Stop()
	}
	if f.noWait {
		timer := time.AfterFunc(waitForServiceNow, func() { cancel(fmt.Errorf("%w: no answer", backend.ErrUnavailable)) })
		defer timer.Stop()
	}
	l := &line{backend: b, signals: signals, suspend: make(chan os.Signal, 1)}
	defer signal.Stop(l.suspend)
	told := false
	req.Waiting = func(w backend.Wait) error {
		if told {
			return nil // it was suspended, and waits again
		}
		told = true
		l.watchSuspend()
		return a.tellWaiting(req, w)
	}
	for {
		hold, err := l.acquire(ctx, req)
		if errors.Is(err, errSuspended) {
			if err = l.stopOurselves(); err == nil {
				req.Token = uuid.NewString()
				continue
			}
		}
		if err != nil {
			return nil, a.notTaken(b, req, f, err)
		}
		return hold, nil
	}
}

// outliveReaders makes a write to a pipe that nobody reads any more an error, and
// not our end: the lock has to be given back first.
func outliveReaders() {
	if !signal.Ignored(syscall.SIGPIPE) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // Ignore would reach the command
	}
}

// tellWaiting says once who has the lock, and refuses to wait for oneself.
func (a *app) tellWaiting(req backend.Request, w backend.Wait) error {
	if h, ours := ancestor(w.Holders); ours {
		return a.selfDeadlock(req, h)
	}
	a.ui.note(req.Name, "waiting: %s", describeHolders(w.Holders, w.Ahead))
	return nil
}

// selfDeadlock is the error of a contender whose own ancestor holds the lock.
func (a *app) selfDeadlock(req backend.Request, h backend.Holder) error {
	e := &exitError{
		code: exitUsage, lock: req.Name,
		msg:  fmt.Sprintf("you already hold it: this process runs under dlock pid %d, which has the lock (%v)", h.Owner.PID, h.Mode),
		hint: "use --reentrant to run under that hold",
	}
	if req.Detached {
		e.hint = "use another name, or the hold that you have"
	} else if !h.Mode.Covers(req.Mode) {
		e.hint = fmt.Sprintf("take the outer lock as %v, or use another name", req.Mode)
	}
	return e
}

// notTaken explains why the lock was not taken.
func (a *app) notTaken(b backend.Backend, req backend.Request, f *lockFlags, err error) error {
	var (
		busy    *backend.BusyError
		stopped *signalError
	)
	switch {
	case errors.As(err, &stopped):
		return &exitError{code: 128 + int(stopped.signal), die: dieOf(stopped.signal), outcome: outcomeSignal}
	case errors.Is(err, errWaitOver) && !errors.Is(err, backend.ErrUnavailable):
		return a.waitOver(b, req, f)
	case errors.As(err, &busy):
		if h, ours := ancestor(busy.Holders); ours {
			return a.selfDeadlock(req, h)
		}
		a.hintElsewhere(b, req.Name)
		return a.busy(req.Name, busy, int(f.busyCode))
	}
	e := a.explain(req.Name, err)
	if e.lock == "" {
		e.lock = req.Name
	}
	return e
}

// waitOver says who has the lock now that the wait is over.
func (a *app) waitOver(b backend.Backend, req backend.Request, f *lockFlags) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	busy := &backend.BusyError{}
	if list, err := b.Inspect(ctx, req.Name); err == nil && len(list) == 1 {
		busy.Holders, busy.Ahead = list[0].Holders, len(list[0].Waiters)
	}
	e := a.busy(req.Name, busy, int(f.busyCode))
	e.msg = fmt.Sprintf("not acquired within %v, %s", time.Duration(f.wait), e.msg)
	e.hint = "look who has it: dlock inspect " + shellQuote(req.Name)
	return e
}
