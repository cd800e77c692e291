package runner

import (
	"time"

	"golang.org/x/sys/unix"
)

// poll waits for one of the descriptors; a negative time-out is none.
func poll(fds []unix.PollFd, timeout time.Duration) {
	ms := -1
	if timeout >= 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	_, _ = unix.Poll(fds, ms) // interrupted: whoever called looks again anyway
}
