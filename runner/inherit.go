package runner

import (
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// closed stands in a list of descriptors for one that the child does not get.
const closed = ^uintptr(0)

// inheritedFiles lists the descriptors that this process got from its parent, each
// at its own number, as ForkExec wants them: Go opens its own so that they close at an
// exec. From now on the inherited ones do, too, so that only children that are
// handed them get them.
func inheritedFiles() []uintptr {
	files := []uintptr{0, 1, 2}
	for _, fd := range openFiles() {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		unix.CloseOnExec(fd)
		for len(files) < fd {
			files = append(files, closed)
		}
		files = append(files, uintptr(fd))
	}
	return files
}

// openFiles returns the descriptors above the standard ones, in ascending order.
func openFiles() []int {
	dir, err := os.Open("/dev/fd")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var fds []int
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			fds = append(fds, fd)
		}
	}
	slices.Sort(fds)
	return fds
}
