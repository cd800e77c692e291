// Package boottime is the clock that leases are measured on: it counts the time
// that the machine sleeps, which Go's own monotonic clock on Linux does not, and
// no step of the wall clock moves it.
package boottime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Instant is a point on the suspend-counting clock of this host, in nanoseconds
// since some moment at or before its boot. Instants of two hosts, or of two boots
// of one host, do not compare. The zero Instant means "never".
type Instant int64

// Apart stands in a boot's name before what sets its clock apart from that of others
// in the same boot.
const Apart = "+"

// Now reads the clock.
func Now() Instant {
	var ts unix.Timespec
	if err := unix.ClockGettime(clockID, &ts); err != nil {
		panic("boottime: " + err.Error()) // the kernel lacks the clock: nothing can be promised
	}
	return Instant(ts.Nano())
}

// Add returns the instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// IsZero tells whether i is the zero Instant, "never".
func (i Instant) IsZero() bool { return i == 0 }
