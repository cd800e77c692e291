package cmd

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/dlock/dlock/backend"
)

// line is a contender for a lock, as the signals that it gets see it.
type line struct {
	backend backend.Backend
	signals <-chan os.Signal
	suspend chan os.Signal // gets SIGTSTP once there is something to wait for
}

// errSuspended ends a wait because this process is about to be stopped.
var errSuspended = errors.New("suspended")

// signalError ends a wait because a signal came.
type signalError struct{ signal syscall.Signal }

// Error names the signal.
func (e *signalError) Error() string { return e.signal.String() }

// acquire runs Acquire and ends it when a signal comes. A lock that is granted at that
// very moment is given back. Acquire runs on the caller's goroutine: another one would
// have to grow a stack of its own, which a short run notices.
func (l *line) acquire(ctx context.Context, req backend.Request) (backend.Hold, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over, stopped := make(chan struct{}), make(chan error, 1)
	go func() { stopped <- l.watch(over, cancel) }()
	hold, err := l.backend.Acquire(ctx, req)
	close(over)
	stop := <-stopped
	if stop == nil {
		return hold, err
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), cleanUpLimit)
		defer cancel()
		err = hold.Release(ctx, 0)
	}
	return nil, errors.Join(stop, err)
}

// watch cancels the wait when a signal comes that ends it, until over is closed. It
// returns what it cancelled the wait for; a signal says more than a suspension.
func (l *line) watch(over <-chan struct{}, cancel context.CancelCauseFunc) error {
	var stop error
	for {
		select {
		case s := <-l.signals:
			if sig := s.(syscall.Signal); endsWait(sig) && (stop == nil || errors.Is(stop, errSuspended)) {
				stop = &signalError{sig}
				cancel(stop)
			}
		case <-l.suspend:
			if stop == nil {
				stop = errSuspended
				cancel(stop)
			}
		case <-over:
			return stop
		}
	}
}

// watchSuspend lets Ctrl-Z take us out of the line, since a waiter that is stopped
// would keep all behind it waiting.
func (l *line) watchSuspend() {
	if !signal.Ignored(syscall.SIGTSTP) {
		signal.Notify(l.suspend, syscall.SIGTSTP)
	}
}

// stopOurselves stops this process as SIGTSTP would have done. It returns when it is
// continued, or with the signal that ends the wait instead.
func (l *line) stopOurselves() error {
	for len(l.signals) > 0 { // an old SIGCONT, say
		if sig := (<-l.signals).(syscall.Signal); endsWait(sig) {
			return &signalError{sig}
		}
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	// It takes effect when a thread sees it, which need not be this one.
	for s := range l.signals {
		switch sig := s.(syscall.Signal); {
		case sig == syscall.SIGCONT:
			return nil
		case endsWait(sig):
			return &signalError{sig}
		}
	}
	return nil
}
