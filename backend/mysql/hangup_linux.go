package mysql

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// hangup calls gone when the server has closed the connection, at once: the next ping
// would find out too, but later.
func hangup(ctx context.Context, w *wire, gone func()) {
	raw, err := w.SyscallConn()
	if err != nil {
		return
	}
	fd := -1
	if raw.Control(func(p uintptr) { fd, err = unix.Dup(int(p)) }) != nil || err != nil {
		return
	}
	defer unix.Close(fd)
	unix.CloseOnExec(fd)
	for ctx.Err() == nil {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, int(pollFor.Milliseconds()))
		if err == nil && n > 0 && ctx.Err() == nil {
			gone()
			return
		}
	}
}

// pollFor is how long the poll outlives the hold at most.
const pollFor = time.Second
