package zookeeper

import (
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// clock reckons when a session may have ended.
//
// In an ensemble the leader decides that, but followers answer pings and reads, also
// when they are cut off from it, for syncLimit ticks. The leader counts a session as
// alive when its follower says so, which it does with the answer to each of the
// leader's pings, twice a tick. A write that the quorum has acknowledged proves that
// its follower had reached the leader until then; it does not itself count as a sign of
// life. So the session lasts for its timeout from the newest frame that was answered
// and that is older than an acknowledged write, by long enough for a ping to lie in
// between: a quarter of the timeout, since no timeout is shorter than two ticks.
//
// The frame that makes or renews a connection is passed to the leader at once.
type clock struct {
	granted  time.Duration
	answered []boottime.Instant // when the answered frames of this connection were sent, after base
	base     boottime.Instant   // from here the timeout counts
}

// interval is the time between two renewals.
func (c *clock) interval() time.Duration { return c.granted / 4 }

// connected notes a connection that was asked for at sent.
func (c *clock) connected(sent boottime.Instant, granted time.Duration) {
	c.granted, c.answered, c.base = granted, nil, max(c.base, sent)
}

// heard notes an answer to the frame that was sent then. It forgets those that a later
// one will stand in for by the time of the next write, and of a burst all but the first.
func (c *clock) heard(sent boottime.Instant) {
	for len(c.answered) > 1 && c.answered[1] <= sent.Add(-2*c.interval()) {
		c.answered = c.answered[1:]
	}
	if n := len(c.answered); n == 0 || sent.Sub(c.answered[n-1]) >= c.interval()/64 {
		c.answered = append(c.answered, sent)
	}
}

// wrote notes an acknowledged write that was sent on this connection, then or later.
func (c *clock) wrote(sent boottime.Instant) {
	n := 0
	for n < len(c.answered) && c.answered[n] <= sent.Add(-c.interval()) {
		c.base = max(c.base, c.answered[n])
		n++
	}
	c.answered = c.answered[n:]
}

// lease is what is left, as the lease of a request that was sent then. The margin for
// clocks that run at different rates is that of the whole timeout.
func (c *clock) lease(sent boottime.Instant) backend.Lease {
	left := c.base.Add(c.granted).Sub(sent)
	return backend.Lease{Sent: sent, TTL: max(1, left-max(0, c.granted-left)/99), Every: c.interval()}
}
