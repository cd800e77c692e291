package cmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
	"github.com/dlock/dlock/renew"
	"github.com/dlock/dlock/runner"
)

// cleanUpLimit bounds a release; the lease's end and a second signal come earlier.
const cleanUpLimit = 10 * time.Second

// job is a command under a lock that was taken, until the lock is given back.
type job struct {
	*app
	opts    *runOptions
	account *account
	path    string
	id      string // marks the environment of the command's processes
	limits  backend.Limits
	hold    backend.Hold
	signals <-chan os.Signal

	taken    boottime.Instant
	lease    backend.Lease // as it is when the command starts
	keeper   *renew.Keeper
	proc     *runner.Command
	loss     *renew.Loss // written by watchLoss alone
	renewals atomic.Int64
	over     chan struct{}
	watched  chan struct{} // closed when watchLoss has ended
}

// run runs the command and gives the lock back, whatever happens in between.
func (j *job) run() error {
	defer func() {
		if r := recover(); r != nil {
			j.panicked()
			panic(r)
		}
	}()
	err := j.before()
	if err == nil {
		err = j.start()
	}
	if err != nil {
		j.giveBack()
		return err
	}
	result := j.proc.Wait()
	close(j.over)
	<-j.watched
	j.keeper.Stop()
	j.account.ended(result)
	return j.outcome(result)
}

// panicked ends the command before a defect ends us.
func (j *job) panicked() {
	if j.proc != nil {
		now := boottime.Now()
		j.proc.Stop(now, now.Add(time.Second))
		j.proc.Wait()
	}
	j.giveBack()
}

// before is what can still keep the command from starting.
func (j *job) before() error {
	select {
	case s := <-j.signals:
		if sig := s.(syscall.Signal); endsWait(sig) {
			return &exitError{code: 128 + int(sig), die: dieOf(sig), outcome: outcomeSignal}
		}
	default:
	}
	j.lease = j.hold.Grant().Lease
	j.taken = j.lease.Sent
	if !j.lease.Ends() {
		return nil
	}
	if grace := time.Duration(j.opts.grace); j.opts.graceSet && j.lease.ShortGrace(grace) < grace {
		j.ui.note(j.opts.name, "--grace %v is cut to a third of the lease when that runs out; raise --ttl to %v to have it always", grace, 3*grace)
	}
	left := j.lease.Deadline().Sub(boottime.Now())
	if left >= j.lease.TTL/3 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), left)
	defer cancel()
	fresh, err := j.hold.Renew(ctx)
	if err != nil {
		return &exitError{code: exitLost, lock: j.opts.name, msg: "lost before the command could start: " + err.Error()}
	}
	j.lease = fresh
	return nil
}

// start starts the command, the renewals and the watch for a loss.
func (j *job) start() (err error) {
	survivors := map[string]runner.Survivors{"wait": runner.Wait, "kill": runner.Kill, "ignore": runner.Ignore}
	spec := runner.Spec{
		Path: j.path, Args: j.opts.command, Env: j.environ(os.Environ()), Mark: `"run":"` + j.id + `"`,
		KeepOpen: j.hold.KeepOpen(), Signals: j.signals,
		Grace: time.Duration(j.opts.grace), MaxRun: time.Duration(j.opts.maxRun),
		Survivors: survivors[j.opts.survivors], Report: j.report,
	}
	if j.hasDeadline() {
		spec.Kill, spec.End = j.lease.KillAt(), j.lease.Deadline()
	}
	if j.proc, err = runner.Start(spec); err != nil {
		return err
	}
	j.keeper = renew.Keep(j.hold, j.lease, renew.Config{
		Grace: time.Duration(j.opts.grace), Lost: j.hold.Lost(), OnLease: j.renewed, OnError: j.renewalFailed,
	})
	j.over, j.watched = make(chan struct{}), make(chan struct{})
	go j.watchLoss()
	return nil
}

// hasDeadline tells whether the end of the lease is the end of the command.
func (j *job) hasDeadline() bool { return j.lease.Ends() && j.opts.onLost == "kill" }

// renewed tells the runner and its guard of a later deadline.
func (j *job) renewed(l backend.Lease) {
	j.renewals.Add(1)
	if j.hasDeadline() {
		j.proc.SetDeadline(l.KillAt(), l.Deadline())
	}
}

// renewalFailed reports a row of failures once, and its end.
func (j *job) renewalFailed(err error) {
	if err == nil {
		j.ui.detail(j.opts.name, "renewed again")
		return
	}
	j.ui.detail(j.opts.name, "not renewed, trying again: %v", err)
}

// watchLoss stops the command when the lock is lost.
func (j *job) watchLoss() {
	defer close(j.watched)
	select {
	case <-j.over:
	case loss := <-j.keeper.Lost():
		j.loss = &loss
		if j.opts.onLost == "warn" {
			j.ui.fail(j.opts.name, "lost: "+loss.Err.Error()+"; the command goes on without the lock (--on-lost warn)", "")
			return
		}
		j.proc.Stop(loss.Kill, loss.End)
		j.ui.fail(j.opts.name, "lost: "+loss.Err.Error()+"; the command is being stopped", "")
	}
}

// outcome gives the lock back, unless something may still run under it, and turns
// the result into an exit code.
func (j *job) outcome(r runner.Result) error {
	name := j.opts.name
	if len(r.Left) > 0 {
		j.account.gave(j.renewals.Load())
		return &exitError{code: exitLost, lock: name, msg: fmt.Sprintf(
			"lost: %s could not be killed before the lease ended; the lock was not released", pids(r.Left))}
	}
	j.giveBack()
	switch {
	case r.Cause == runner.MaxRun:
		j.account.Message = fmt.Sprintf("--max-run %v is over", time.Duration(j.opts.maxRun)) // report has said so
		return &exitError{code: exitMaxRun}
	case j.loss == nil && r.Cause == runner.Deadline:
		return &exitError{code: exitLost, lock: name, msg: "lost: the lease could not be renewed in time; the command was killed"}
	case j.loss != nil && (r.Cause != runner.Ended || j.opts.onLost == "warn"):
		j.account.Message = "lost: " + j.loss.Err.Error() // watchLoss has said so
		return &exitError{code: exitLost}
	case r.Code == 0:
		return nil
	}
	e := &exitError{code: r.Code, die: r.DieBy, outcome: outcomeFailed}
	if r.Signal != 0 {
		e.outcome = outcomeSignal
	}
	return e
}

// giveBack releases the lock, or leaves what --min-hold asks for, and warns if that
// cannot be done.
func (j *job) giveBack() {
	defer func() { j.account.gave(j.renewals.Load()) }()
	lease, tail := j.hold.Grant().Lease, time.Duration(0)
	if j.keeper != nil {
		lease = j.keeper.Lease()
	}
	if j.opts.minHold > 0 && j.loss == nil && j.proc != nil {
		tail = max(0, time.Duration(j.opts.minHold)-boottime.Now().Sub(j.taken))
	}
	limit := cleanUpLimit
	if lease.Ends() {
		limit = min(limit, lease.Deadline().Sub(boottime.Now()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	go j.hurry(ctx, cancel)
	err := j.hold.Release(ctx, tail)
	switch {
	case err == nil || j.loss != nil:
	case errors.Is(err, backend.ErrLost):
		j.ui.warn(j.opts.name, "the lock was no longer held when the command ended: %v", err)
	case lease.Ends():
		j.ui.warn(j.opts.name, "not released, ends by itself in %s: %v", short(max(0, lease.Sent.Add(lease.TTL).Sub(boottime.Now()))), err)
	default:
		j.ui.warn(j.opts.name, "not released as asked: %v", err)
	}
}

// leastRelease is what a release gets after a signal that is to hurry it: timeout(1)
// sends one to us and another to our group, and the second is no wish to leave the lock.
const leastRelease = 500 * time.Millisecond

// hurry ends a slow release soon after the next signal.
func (j *job) hurry(ctx context.Context, cancel context.CancelFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-j.signals:
			if !endsWait(s.(syscall.Signal)) {
				continue
			}
			select {
			case <-ctx.Done():
			case <-time.After(leastRelease):
				cancel()
			}
			return
		}
	}
}

// report puts what the runner tells into words.
func (j *job) report(e runner.Event) {
	name := j.opts.name
	var who []string
	for _, p := range e.Processes {
		who = append(who, fmt.Sprintf("%d (%s)", p.PID, p.Command))
	}
	list := strings.Join(who, ", ")
	switch e.Kind {
	case runner.Stopping:
		why := "got " + signalName(e.Signal)
		if e.Signal == 0 {
			why = fmt.Sprintf("--max-run %v is over", time.Duration(j.opts.maxRun))
			j.ui.warn(name, "%s: the command is being stopped, SIGKILL in %v", why, e.Grace)
			return
		}
		j.ui.detail(name, "%s: the command is being stopped, SIGKILL in %v", why, e.Grace)
	case runner.Killing:
		j.ui.note(name, "got %s again: the command is killed", signalName(e.Signal))
	case runner.WaitingSurvivors:
		j.ui.note(name, "the command ended, the lock is kept for what it left running: %s (an interrupt stops it)", list)
	case runner.KillingSurvivors:
		j.ui.note(name, "the command ended, what it left is being stopped: %s", list)
	case runner.NotPermitted:
		j.ui.warn(name, "no permission to stop %s", list)
	case runner.Remaining:
		j.ui.warn(name, "still alive at the end of the lease: %s", list)
	case runner.Unguarded:
		j.ui.warn(name, "the guard process cannot be started: %v", e.Err)
	}
}

// pids lists processes for a message.
func pids(list []proc.Process) string {
	var parts []string
	for _, p := range list {
		parts = append(parts, fmt.Sprintf("pid %d", p.PID))
	}
	return strings.Join(parts, ", ")
}

// signalName is "SIGTERM" and the like.
func signalName(sig syscall.Signal) string { return unix.SignalName(sig) }

// endsWait tells whether a signal ends what has not begun yet: all do, but those that
// only tell of the terminal.
func endsWait(sig syscall.Signal) bool { return sig != syscall.SIGCONT && sig != syscall.SIGWINCH }

// dieOf is the signal that dlock should itself die of after it was interrupted by sig
// in a terminal, so that a shell's loop around it ends.
func dieOf(sig syscall.Signal) syscall.Signal {
	if (sig == syscall.SIGINT || sig == syscall.SIGQUIT) && runner.InForeground() {
		return sig
	}
	return 0
}
