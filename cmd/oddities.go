package cmd

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
)

// oddities finds what the service cannot know: processes of this host that are stopped
// or have ended, and what should have happened by now.
func oddities(s backend.Status) (odd []string) {
	for _, h := range s.Holders {
		if h.Leased && h.Left <= 0 {
			odd = append(odd, fmt.Sprintf("the lease of %s is overdue by %s", who(h.Owner), short(-h.Left)))
		}
		if h.Tail {
			continue
		}
		switch lookUp(h.Owner) {
		case stopped:
			odd = append(odd, fmt.Sprintf("the holder, pid %d, is stopped; go on with it: kill -CONT %d", h.Owner.PID, h.Owner.PID))
		case ended:
			odd = append(odd, fmt.Sprintf("the holder, pid %d, has ended without a release", h.Owner.PID))
		}
	}
	for i, w := range s.Waiters {
		switch lookUp(w.Owner) {
		case stopped:
			odd = append(odd, fmt.Sprintf("waiter %d, pid %d, is stopped; go on with it: kill -CONT %d", i+1, w.Owner.PID, w.Owner.PID))
		case ended:
			odd = append(odd, fmt.Sprintf("waiter %d, pid %d, has ended and did not leave the line", i+1, w.Owner.PID))
		}
	}
	return odd
}

// liveness is what this host knows of an owner's process.
type liveness int

const (
	unknown liveness = iota // no process, or one of another host
	alive
	stopped
	ended
)

// lookUp looks for the process behind a hold, or a place in line.
func lookUp(o backend.Owner) liveness {
	ours := o.BootID != "" && o.BootID == boottime.BootID() && o.PIDNS == proc.Namespace()
	local := o.Kind == backend.Foreign && o.BootID == "" // a number from our own kernel
	if o.Kind == backend.Detached || o.PID <= 0 || !ours && !local {
		return unknown
	}
	p, err := proc.Get(o.PID)
	switch {
	case ours && (errors.Is(err, fs.ErrNotExist) && isGone(o.PID) || err == nil && (p.Start != o.Start || p.Zombie)):
		return ended
	case err != nil:
		return unknown // one that is not ours may also have passed the lock on to a child
	case p.Stopped:
		return stopped
	}
	return alive
}

// isGone asks the kernel itself: /proc may hide other users' processes.
func isGone(pid int) bool { return errors.Is(unix.Kill(pid, 0), unix.ESRCH) }
