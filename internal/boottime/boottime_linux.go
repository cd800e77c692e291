package boottime

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const clockID = unix.CLOCK_BOOTTIME

// BootID names this boot of this kernel; it is empty where it cannot be read.
func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}
