package runner

import (
	"syscall"
	"time"

	"github.com/dlock/dlock/internal/proc"
)

// Event is something that a person should be told. Events that nobody takes in
// time are dropped: a blocked standard error must not delay a kill.
type Event struct {
	Kind      EventKind
	Signal    syscall.Signal // Stopping, Killing: the signal that we got; 0 for MaxRun
	Grace     time.Duration  // Stopping, KillingSurvivors: the time until SIGKILL
	Processes []Named        // the processes concerned, where there are any
	Err       error          // Unguarded
}

// EventKind says what happened.
type EventKind int

const (
	Stopping         EventKind = iota // SIGTERM was sent, because of a signal or MaxRun
	Killing                           // SIGKILL was sent, because a second signal came while stopping
	WaitingSurvivors                  // the command ended, and processes that it left are waited for; repeated
	KillingSurvivors                  // SIGTERM was sent to processes that the command left
	NotPermitted                      // processes must be stopped, and we may not
	Remaining                         // processes are alive at the end of the deadline
	Unguarded                         // the guard died and cannot be replaced yet
)

// Named is a process with its command line.
type Named struct {
	PID     int
	Command string
}

// named looks the command lines up, which is too late once the processes ended.
func named(list []proc.Process) []Named {
	var names []Named
	for _, p := range list {
		names = append(names, Named{p.PID, proc.Command(p.PID)})
	}
	return names
}

// report hands an event to Wait.
func (c *Command) report(e Event) {
	select {
	case c.events <- e:
	default:
	}
}
