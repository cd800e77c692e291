package boottime

import "golang.org/x/sys/unix"

// FreeBSD's CLOCK_MONOTONIC does not promise to count suspend.
const clockID = unix.CLOCK_MONOTONIC

// BootID is empty on FreeBSD, which names no boot.
func BootID() string { return "" }
