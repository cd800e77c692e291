package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/runner"
)

// dlock's own exit codes, from sysexits.h and the shell where they have one.
const (
	exitUsage       = 64
	exitUnavailable = 69
	exitDefect      = 70
	exitBusy        = 75
	exitLost        = 76
	exitDenied      = 77
	exitMaxRun      = 124
)

const exitCodesHelp = `Exit codes:
  the command's own, or 128+n if signal n ended it
  64   usage: bad flag, bad name, bad URL, slots differ
  69   the lock service is unreachable or failing
  70   a defect in dlock
  75   busy: not acquired within --wait or --no-wait (change it with -E)
  76   lost: the lock was lost while the command ran, or the token does not hold it
  77   the lock service refuses this user
  124  --max-run reached
  126  the command is not executable
  127  the command was not found`

// reserved are the codes that -E may not choose, since they mean something else.
var reserved = []int{exitUsage, exitUnavailable, exitDefect, exitLost, exitDenied, exitMaxRun, 126, 127}

// exitError ends dlock with a code, after one line and a hint for the user.
type exitError struct {
	code int
	lock string
	msg  string // empty: the code says it all, or it was said before
	hint string
	mild bool // an outcome and no failure: --quiet hides it
	die  syscall.Signal
}

// Error returns the message.
func (e *exitError) Error() string { return e.msg }

func usageError(format string, args ...any) error {
	return &exitError{code: exitUsage, msg: fmt.Sprintf(format, args...)}
}

// exitCode prints what has to be said about err and returns its code.
func (a *app) exitCode(err error) int {
	if err == nil {
		return 0
	}
	e := a.explain("", err)
	if e.msg != "" && !(e.mild && a.ui.quiet) {
		a.ui.fail(e.lock, e.msg, e.hint)
	}
	if e.die != 0 {
		runner.Die(e.die)
	}
	return e.code
}

// explain is the one place where errors become exit codes.
func (a *app) explain(lock string, err error) *exitError {
	var (
		exit  *exitError
		start *runner.StartError
		busy  *backend.BusyError
		e     = &exitError{lock: lock, msg: err.Error()}
	)
	switch {
	case errors.As(err, &exit):
		return exit
	case errors.As(err, &start):
		e.code = start.Code
	case errors.As(err, &busy):
		return a.busy(lock, busy, exitBusy)
	case errors.Is(err, backend.ErrLost), errors.Is(err, backend.ErrRevoked):
		e.code = exitLost
	case errors.Is(err, backend.ErrRunning):
		e.code, e.hint = exitUsage, "end the run itself, or revoke its hold: dlock release --force NAME TOKEN"
	case errors.Is(err, backend.ErrInvalid), errors.Is(err, backend.ErrUnsupported):
		e.code = exitUsage
	case errors.Is(err, backend.ErrDenied):
		e.code, e.hint = exitDenied, "use a directory or an account that may take locks; see dlock run --help, --backend"
	case errors.Is(err, backend.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		e.code = exitUnavailable
	case strings.HasPrefix(e.msg, "unknown command"):
		e.code, e.hint = exitUsage, "see dlock --help"
	default: // cobra's complaints about arguments
		e.code = exitUsage
	}
	return e
}

// busy says who has the lock.
func (a *app) busy(lock string, busy *backend.BusyError, code int) *exitError {
	return &exitError{
		code: code, lock: lock, mild: true, msg: "busy: " + describeHolders(busy.Holders, busy.Ahead),
		hint: "wait for it with -w 5m, or look: dlock inspect " + shellQuote(lock),
	}
}
