package backend

import (
	"time"

	"github.com/dlock/dlock/internal/boottime"
)

// Lease is a hold that ends by itself, as its holder must reckon it: counted from
// before the request was sent, on the suspend-counting clock. The zero TTL means
// that the hold has no end of its own (a kernel lock ends with its process).
type Lease struct {
	Sent  boottime.Instant // just before the request left
	TTL   time.Duration    // as granted, rounded down where the service is coarser
	Every time.Duration    // renewal interval, usually TTL/3
}

// Ends tells whether the lease ends by itself.
func (l Lease) Ends() bool { return l.TTL > 0 }

// Deadline is the moment from which somebody else may hold the lock: the granted
// time, less a margin for clocks that run at rates up to 1 % apart.
func (l Lease) Deadline() boottime.Instant {
	return l.Sent.Add(l.TTL - max(20*time.Millisecond, l.TTL/100))
}

// KillAt is the last moment to send SIGKILL: far enough before the deadline that
// the kernel can take down a large process.
func (l Lease) KillAt() boottime.Instant { return l.Deadline().Add(-l.killMargin()) }

func (l Lease) killMargin() time.Duration { return max(250*time.Millisecond, l.TTL/50) }

// StopAt is the moment to send SIGTERM when the lease could not be renewed: the grace
// before SIGKILL, but no earlier than a third of the lease before its deadline.
func (l Lease) StopAt(grace time.Duration) boottime.Instant {
	return l.KillAt().Add(-max(0, min(grace, l.TTL/3-l.killMargin())))
}

// ShortGrace is the SIGTERM to SIGKILL gap that the lease leaves room for: with a
// longer one, renewals would not get their chance before the stop.
func (l Lease) ShortGrace(grace time.Duration) time.Duration {
	if !l.Ends() {
		return grace
	}
	return min(grace, l.TTL/3)
}
