// Package runner runs the one command of a process and owns its whole life: it
// passes signals on, stops the command and all that belongs to it before a
// deadline, and sees to it that nothing of the command outlives the process, not
// even when that is killed. It knows no locks.
//
// A process runs one command with it, and must have no other children: whatever
// child ends is reaped here.
package runner

import (
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
)

// Spec says what to run and how it is to be stopped.
type Spec struct {
	Path string   // as Find returned it
	Args []string // Args[0] is the name that the command sees as its own
	Env  []string

	// Mark is a word in Env that no other run has. The guard knows by it what the
	// command left behind after this process itself was killed.
	Mark string
	// KeepOpen are files that stay open in the guard until it has finished, so that
	// a kernel lock on one of them outlives this process as long as the command does.
	KeepOpen []*os.File
	// Signals comes from the function Signals; it is read until the command is over.
	Signals <-chan os.Signal

	Grace     time.Duration    // from SIGTERM to SIGKILL
	MaxRun    time.Duration    // the command is stopped after it; 0: never
	Survivors Survivors        // what becomes of processes that the command leaves
	Kill, End boottime.Instant // the first deadline, as in SetDeadline; zero: none

	// Report is told what a person should know. It is called by Wait, and may be nil.
	Report func(Event)
}

// Survivors says what becomes of the processes that the command, having ended by
// itself, left in its process group.
type Survivors int

const (
	Wait   Survivors = iota // they are waited for
	Kill                    // they get SIGTERM, and SIGKILL after the grace period
	Ignore                  // they are left alone
)

// Cause tells why a command is over.
type Cause int

const (
	Ended    Cause = iota // by itself, or by a signal that was sent to it or to us
	MaxRun                // it was stopped after Spec.MaxRun
	Stopped               // it was stopped by Stop
	Deadline              // it was killed because its deadline had come
)

// Result is the outcome of a command.
type Result struct {
	Code   int            // its exit code, 128+n if signal n ended it
	Signal syscall.Signal // the one that ended it, or 0
	Cause  Cause          // the first reason to stop it, if it was stopped
	// Left are the processes that were still alive at the end of the deadline,
	// although they were killed.
	Left []proc.Process
	// DieBy is SIGINT or SIGQUIT if that ended the command in the foreground of a
	// terminal: the caller should Die of it too, so that a shell's loop ends.
	DieBy syscall.Signal
}

// Command is a command that was started.
type Command struct {
	spec       Spec
	guard      *guard
	foreground bool  // the command shares our process group
	pid        int   // the command's
	group      group // the command's own, unless in the foreground

	events chan Event // closed when result is there
	result Result

	mu        sync.Mutex
	deadline  limits // from SetDeadline
	stopAsked bool   // Stop was called
	stopAt    limits // from Stop
	changed   chan struct{}
}

// limits are the moments that a deadline consists of. A zero one never comes.
type limits struct{ kill, end boottime.Instant }

// Start starts the guard and then the command. A command that cannot be executed
// is a *StartError; any other error means that nothing could be run at all.
func Start(spec Spec) (*Command, error) {
	c := &Command{
		spec:       spec,
		foreground: InForeground(),
		events:     make(chan Event, 64),
		deadline:   limits{spec.Kill, spec.End},
		changed:    make(chan struct{}, 1),
	}
	started := make(chan error)
	go c.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// SetDeadline replaces the deadline: at kill, this process and the guard, whichever
// comes first, send SIGKILL to whatever is left; at end, Wait gives up. A deadline
// whose kill has come is not replaced any more. Any goroutine may call it.
func (c *Command) SetDeadline(kill, end boottime.Instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.deadline.kill
	// We may be stopped between any two lines. So that a kill by the guard is never a
	// surprise, its deadline must at no time be earlier than ours.
	later := kill.IsZero() || !old.IsZero() && kill > old
	if later {
		c.tellGuard(kill)
	}
	if reached(boottime.Now(), old) {
		return // somebody may have killed already
	}
	c.deadline = limits{kill, end}
	if !later {
		c.tellGuard(kill)
	}
	c.wake()
}

// Stop sends SIGTERM to all that belongs to the command, and SIGKILL at kill (zero:
// after the grace period; in the past: at once). At end, if it is not zero, Wait gives up.
// Stopping cannot be undone; of several calls the earliest moments count. Any
// goroutine may call it.
func (c *Command) Stop(kill, end boottime.Instant) {
	if kill.IsZero() {
		kill = boottime.Now().Add(c.spec.Grace)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopAsked = true
	c.stopAt = limits{earliest(c.stopAt.kill, kill), earliest(c.stopAt.end, end)}
	c.tellGuard(c.deadline.kill)
	c.wake()
}

// tellGuard passes the deadline on, or the earlier moment that Stop gave; c.mu is held.
func (c *Command) tellGuard(deadline boottime.Instant) {
	c.guard.tell(func(o *orders) { o.kill = earliest(deadline, c.stopAt.kill) })
}

// wake makes the loop look at the limits.
func (c *Command) wake() {
	select {
	case c.changed <- struct{}{}:
	default: // it has yet to look, and will see this too
	}
}

// Wait returns once nothing is left that has to be waited for, or at the end of
// the deadline.
func (c *Command) Wait() Result {
	for e := range c.events {
		if c.spec.Report != nil {
			c.spec.Report(e)
		}
	}
	return c.result
}

// earliest returns the first of the moments that ever come; zero if none does.
func earliest(moments ...boottime.Instant) boottime.Instant {
	var first boottime.Instant
	for _, m := range moments {
		if first.IsZero() || !m.IsZero() && m < first {
			first = m
		}
	}
	return first
}

// reached tells whether moment m has come.
func reached(now, m boottime.Instant) bool { return !m.IsZero() && now >= m }
