package runner

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// becomeSubreaper makes orphans among our descendants our children, so that we see
// those that left the command's group.
func becomeSubreaper() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// dieWithParent lets the kernel kill the child when the thread that forked it ends.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = unix.SIGKILL }

// ownExecutable is our own program, even if its file was replaced meanwhile.
func ownExecutable() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Lstat(self); err == nil {
		return self, nil
	}
	return os.Executable()
}

// defaultAction takes the Go runtime's handler off a signal: for SIGQUIT it would
// print stacks and exit with 2. An all-zero struct means SIG_DFL on every processor.
func defaultAction(sig syscall.Signal) {
	var action [64]byte
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&action)), 0, sigsetSize, 0, 0)
}

const sigsetSize = 8
