package boottime

import "golang.org/x/sys/unix"

// FreeBSD's CLOCK_MONOTONIC does not promise to count suspend.
const clockID = unix.CLOCK_MONOTONIC

// NamesBoots tells whether this system can tell one boot from another.
const NamesBoots = false

// BootID is empty on FreeBSD, which names no boot.
func BootID() string { return "" }
