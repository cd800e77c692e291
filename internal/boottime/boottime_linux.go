package boottime

import (
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const clockID = unix.CLOCK_BOOTTIME

// NamesBoots tells whether this system can tell one boot from another.
const NamesBoots = true

// initialTime is the time namespace that a machine starts with (PROC_TIME_INIT_INO).
const initialTime = "time:[4026531834]"

// BootID names this boot of this kernel, and in another time namespace than the
// machine's own, whose clock is set apart, that as well. Instants compare only under
// the same name. It is empty where it cannot be read.
func BootID() string { return bootID() }

var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	boot := strings.TrimSpace(string(id))
	if ns, err := os.Readlink("/proc/self/ns/time"); err == nil && ns != initialTime {
		boot += Apart + ns
	}
	return boot
})
