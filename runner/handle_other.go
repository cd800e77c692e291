//go:build !linux

package runner

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/proc"
)

// handle is one process; this system has nothing better than its number.
type handle struct{ proc.Process }

func hold(p proc.Process) (handle, bool) { return handle{p}, unix.Kill(p.PID, 0) != unix.ESRCH }

func (handle) release() {}

func (h handle) signal(sig syscall.Signal) error { return unix.Kill(h.PID, sig) }

// awaitEnd returns soon: this system does not tell of a strange process's end.
func awaitEnd(_ []handle, in int, timeout time.Duration) {
	poll([]unix.PollFd{{Fd: int32(in), Events: unix.POLLIN}}, min(timeout, lookAgain))
}

const lookAgain = 10 * time.Millisecond

// group is a process group.
type group struct{ id int }

func openGroup(leader int) group { return group{leader} }

func (g group) signal(sig syscall.Signal) error { return unix.Kill(-g.id, sig) }
