package runner

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// alive tells whether the group has a member that is not reaped.
func (g group) alive() bool { return !errors.Is(g.signal(0), unix.ESRCH) }

// hidden tells whether the group has members of another user, whom we may not signal
// and, as /proc is mounted on some machines, not even see.
func (g group) hidden() bool { return errors.Is(g.signal(0), unix.EPERM) }

// exists tells whether there is a group at all.
func (g group) exists() bool { return g.id != 0 }

// send signals each process and returns those that we may not signal.
func send(sig syscall.Signal, handles []handle) (refused []handle) {
	for _, h := range handles {
		if errors.Is(h.signal(sig), unix.EPERM) {
			refused = append(refused, h)
		}
	}
	return refused
}
