package runner

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/proc"
)

// handle is one process, which cannot be mistaken for a later one with its number.
type handle struct {
	proc.Process
	pidfd int // -1 where the kernel has none
}

// hold opens a handle; false if the process is gone.
func hold(p proc.Process) (handle, bool) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return handle{}, false
	}
	if err != nil {
		fd = -1
	}
	h := handle{p, fd}
	if now, err := proc.Get(p.PID); err != nil || now.Start != p.Start || now.Zombie {
		h.release()
		return handle{}, false
	}
	return h, true
}

func (h handle) release() {
	if h.pidfd >= 0 {
		unix.Close(h.pidfd)
	}
}

func (h handle) signal(sig syscall.Signal) error {
	if h.pidfd >= 0 {
		return unix.PidfdSendSignal(h.pidfd, sig, nil, 0)
	}
	return unix.Kill(h.PID, sig)
}

// awaitEnd returns when one of the processes has ended, descriptor in (if not -1)
// can be read, or after the time-out.
func awaitEnd(handles []handle, in int, timeout time.Duration) {
	// poll(2) skips negative descriptors.
	fds := []unix.PollFd{{Fd: int32(in), Events: unix.POLLIN}}
	for _, h := range handles {
		fds = append(fds, unix.PollFd{Fd: int32(h.pidfd), Events: unix.POLLIN})
		if h.pidfd < 0 {
			timeout = min(timeout, lookAgain)
		}
	}
	poll(fds, timeout)
}

// lookAgain is how long to wait where the kernel does not tell of a process's end.
const lookAgain = 10 * time.Millisecond

// group is a process group. Where the kernel can, it is named by its leader's
// pidfd: then it cannot be mistaken for a later group with its number.
type group struct{ id, pidfd int }

// openGroup returns the group of a leader that is known to be unreaped.
func openGroup(leader int) group {
	fd, err := unix.PidfdOpen(leader, 0)
	if err != nil {
		fd = -1
	}
	return group{leader, fd}
}

func (g group) signal(sig syscall.Signal) error {
	if g.pidfd >= 0 {
		err := unix.PidfdSendSignal(g.pidfd, sig, nil, unix.PIDFD_SIGNAL_PROCESS_GROUP)
		if err == nil || errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return unix.Kill(-g.id, sig) // before Linux 6.9
}

// sameProgram tells whether a process runs the program that we run.
func sameProgram(pid int) bool {
	theirs, err := os.Stat(procDir(pid) + "/exe")
	if err != nil {
		return false
	}
	ours, err := os.Stat("/proc/self/exe")
	return err == nil && os.SameFile(theirs, ours)
}
