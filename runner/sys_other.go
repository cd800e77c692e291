//go:build !linux

package runner

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// This system has no subreapers.
func becomeSubreaper() {}

// This system does not kill a child when its parent ends; the guard does.
func dieWithParent(*syscall.SysProcAttr) {}

func ownExecutable() (string, error) { return os.Executable() }

// defaultAction ends the process for SIGQUIT, where the Go runtime's handler would
// print stacks; it knows the default action of the others.
func defaultAction(sig syscall.Signal) {
	if sig == unix.SIGQUIT {
		os.Exit(128 + int(sig))
	}
}
