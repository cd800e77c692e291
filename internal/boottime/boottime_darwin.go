package boottime

import "golang.org/x/sys/unix"

// Darwin's CLOCK_MONOTONIC goes on while the machine sleeps (clock_gettime(3)).
const clockID = unix.CLOCK_MONOTONIC

// NamesBoots tells whether this system can tell one boot from another.
const NamesBoots = true

// BootID names this boot of this kernel; it is empty where it cannot be read.
func BootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}
