package runner

import (
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
)

// life is the state of the goroutine that runs the command. It alone forks, reaps
// and kills; the other goroutines only set limits.
type life struct {
	*Command
	children chan os.Signal // SIGCHLD

	exited bool
	status unix.WaitStatus
	reaped bool // a child ended since we last looked around

	stop  stopping
	maxAt boottime.Instant // the end of MaxRun, unless it was dealt with

	strangers map[int]bool     // children that we had before
	survivors []proc.Process   // as last seen
	reportAt  boottime.Instant // when to name them (again)

	backoff time.Duration // between two rounds of killing
	refused map[int]bool  // whom we may not signal, told already
}

// run starts the command and stays with it to its end.
func (c *Command) run(started chan<- error) {
	// The kernel kills the command when the thread that forked it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	l := &life{Command: c, children: make(chan os.Signal, 1), refused: map[int]bool{}}
	signal.Notify(l.children, unix.SIGCHLD)
	becomeSubreaper()
	err := l.start()
	started <- err
	if err != nil {
		return
	}
	for !l.step() {
		l.sleep()
	}
	c.result = l.outcome()
	if len(c.result.Left) > 0 {
		close(c.events) // the guard goes on killing when we are gone
		return
	}
	c.guard.dismiss()
	close(c.events)
	c.guard.reap() // while the caller goes on
}

// start starts the guard, which then knows the mark already, and the command.
func (l *life) start() error {
	l.strangers = ownChildren()
	files := inheritedFiles()
	l.guard = &guard{keep: l.spec.KeepOpen, stayInSession: l.foreground}
	l.guard.orders = orders{group: !l.foreground, since: ticks(boottime.Now()), mark: l.spec.Mark, kill: l.deadline.kill}
	if err := l.guard.start(); err != nil {
		return err
	}
	attr := &syscall.SysProcAttr{Setpgid: !l.foreground}
	if !l.foreground {
		// In the foreground the guard finds the command's descendants by their
		// parents, and the command itself must live until it has looked.
		dieWithParent(attr)
	}
	pid, err := startCommand(l.spec, files, attr)
	if err != nil {
		l.guard.dismiss()
		l.guard.reap()
		return err
	}
	l.pid = pid
	if !l.foreground {
		l.group = openGroup(pid)
	}
	leader, _ := proc.Get(pid)
	l.guard.tell(func(o *orders) { o.pid, o.start = pid, leader.Start })
	if l.spec.MaxRun > 0 {
		l.maxAt = boottime.Now().Add(l.spec.MaxRun)
	}
	return nil
}

// step looks at the clock before anything else: whoever was paused or slept past
// the deadline kills first. Then it looks at the children. True: all is over.
func (l *life) step() bool {
	l.lookAtClock()
	l.reap()
	l.lookAtClock() // we may have been stopped in between, and the guard have killed
	l.replaceGuard()
	switch {
	case l.stop.killing:
		return l.killRound()
	case l.exited:
		return l.lookAtSurvivors()
	}
	return false
}

// sleep waits for something to happen.
func (l *life) sleep() {
	timer := time.NewTimer(l.untilNext())
	defer timer.Stop()
	select {
	case sig := <-l.spec.Signals:
		l.lookAtClock()
		l.handle(sig.(syscall.Signal))
	case <-l.children:
	case <-l.changed:
	case <-timer.C:
	}
}

// reap takes every child that has ended: the command, the guard, and orphans that
// became ours.
func (l *life) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if err == unix.EINTR {
			continue
		}
		if pid <= 0 {
			return
		}
		l.reaped = true
		if pid == l.pid && !l.exited { // an orphan may have got the number later
			l.exited, l.status = true, status
		}
		l.guard.reaped(pid)
	}
}

func (l *life) replaceGuard() {
	if !reached(boottime.Now(), l.guard.nextStart()) {
		return
	}
	if err := l.guard.start(); err != nil {
		l.report(Event{Kind: Unguarded, Err: err})
	}
}

// outcome puts the end together.
func (l *life) outcome() Result {
	r := Result{Cause: l.stop.cause, Left: l.stop.left}
	switch {
	case !l.exited:
		r.Code = 128 + int(unix.SIGKILL) // it was sent
	case l.status.Signaled():
		r.Signal = l.status.Signal()
		r.Code = 128 + int(r.Signal)
	default:
		r.Code = l.status.ExitStatus()
	}
	if l.foreground && r.Cause == Ended && (r.Signal == unix.SIGINT || r.Signal == unix.SIGQUIT) {
		r.DieBy = r.Signal
	}
	return r
}
