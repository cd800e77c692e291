package runner

import (
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// inherited are the descriptors above the standard ones that this process got from its
// parent. Go opens its own so that they close at an exec; these are made so too, and
// only the command gets them.
type inherited []int

// inheritedFiles finds the inherited descriptors, and holds them back.
func inheritedFiles() inherited {
	var files inherited
	for _, fd := range openFiles() {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			files = append(files, fd)
		}
	}
	files.holdBack()
	return files
}

// holdBack lets no child have them.
func (files inherited) holdBack() {
	for _, fd := range files {
		unix.CloseOnExec(fd)
	}
}

// passOn lets the next child have them, each at its number, which may be above what
// the limit on open files lets anybody open.
func (files inherited) passOn() {
	for _, fd := range files {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0)
	}
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
