package cmd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

// The exit codes of each subcommand, for its help.
const (
	commonExitCodes = `
  64   usage: bad flag, bad name, bad URL, slots differ
  69   the lock service is unreachable or failing
  70   a defect in dlock`
	busyExitCode = `
  75   busy: not acquired within --wait or --no-wait (change it with -E)`
	deniedExitCode = `
  77   the lock service refuses this user`

	runExitCodes = `Exit codes:
  the command's own, or 128+n if signal n ended it` + commonExitCodes + busyExitCode + `
  76   lost: the lock was lost, or could not be renewed in time, while the command ran` + deniedExitCode + `
  124  --max-run reached
  126  the command is not executable
  127  the command was not found`
	acquireExitCodes = `Exit codes:
  0    acquired` + commonExitCodes + busyExitCode + deniedExitCode
	tokenExitCodes = `Exit codes:
  0    done` + commonExitCodes + `
  76   lost: the token does not hold the lock (any more)` + deniedExitCode
	benchExitCodes = `Exit codes:
  0    measured
  1    a lock service let in two at once, or gave out a fence that did not grow` + commonExitCodes + deniedExitCode
	inspectExitCodes = `Exit codes:
  0    shown; with --quiet: held
  1    with --quiet: free` + commonExitCodes + deniedExitCode
	doctorExitCodes = `Exit codes:
  0    nothing is wrong
  1    with --strict: there are warnings` + commonExitCodes
)

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

	outcome string // for --report, where the code does not tell
}

// Error returns the message.
func (e *exitError) Error() string { return e.msg }

// named puts the lock's name before what went wrong with it; a mistake in the command
// line has nothing to do with it.
func (a *app) named(lock string, err error) error {
	if err == nil {
		return nil
	}
	e := *a.explain(lock, err)
	if e.lock == "" && e.code != exitUsage {
		e.lock = lock
	}
	return &e
}

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
		a.ui.flush()
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
		path  *fs.PathError
		e     = &exitError{lock: lock, msg: strings.TrimPrefix(err.Error(), backend.ErrInvalid.Error()+": ")}
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
		e.code, e.hint = exitUsage, "end the run itself, or revoke its hold: dlock release --force "+shellQuote(lock)+" TOKEN"
	case errors.Is(err, backend.ErrInvalid), errors.Is(err, backend.ErrUnsupported):
		e.code = exitUsage
	case errors.Is(err, backend.ErrDenied):
		e.code, e.hint = exitDenied, "use a directory or an account that may take locks; see dlock run --help, --backend"
	case errors.Is(err, backend.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		e.code = exitUnavailable
	case strings.HasPrefix(e.msg, "unknown command"):
		e.code, e.hint = exitUsage, "see dlock --help"
	case errors.As(err, &path): // such as a standard output that is full
		e.code = exitUnavailable
	default:
		e.code = exitDefect
	}
	return e
}

// busy says who has the lock.
func (a *app) busy(lock string, busy *backend.BusyError, code int) *exitError {
	e := &exitError{
		code: code, lock: lock, mild: true, outcome: outcomeBusy, msg: "busy: " + describeHolders(busy.Holders, busy.Ahead),
		hint: "wait for it with -w 5m, or look: dlock inspect " + shellQuote(lock),
	}
	if code == 0 {
		e.hint = "" // busy is as good as done
	}
	return e
}
