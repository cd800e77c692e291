package runner

import "golang.org/x/sys/unix"

// InForeground tells whether this process is in the foreground of its controlling
// terminal, so that the terminal's signals reach it. Standard input need not be that
// terminal.
func InForeground() bool {
	pgrp, err := foregroundGroup()
	return err == nil && pgrp == unix.Getpgrp()
}

// foregroundGroup returns the process group in the foreground of the controlling
// terminal; an error means that there is no terminal, or none any more.
func foregroundGroup() (int, error) {
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	return unix.IoctlGetInt(fd, unix.TIOCGPGRP)
}
