//go:build !linux

package proc

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

var errUnknown = errors.New("processes cannot be listed on this system")

// List fails: this system has no /proc to read.
func List() ([]Process, error) { return nil, errUnknown }

// Namespace is empty: this system has but one.
func Namespace() string { return "" }

// Get knows only this process itself and its parent.
func Get(pid int) (Process, error) {
	pgid, err := unix.Getpgid(pid)
	if err != nil {
		return Process{}, err
	}
	p := Process{PID: pid, PGID: pgid}
	if pid == os.Getpid() {
		p.PPID = os.Getppid()
	}
	return p, nil
}

// Command is unknown on this system.
func Command(int) string { return "" }
