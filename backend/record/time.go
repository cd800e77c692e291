package record

import (
	"math"
	"time"
)

// Time is a moment on the service's one clock, in microseconds. Zero means never;
// "now" is above zero.
type Time int64

// forever is what a moment saturates at.
const forever Time = math.MaxInt64

// Add returns the moment d later, at most the last one there is. What is finer than
// a microsecond is rounded up: the service keeps a lease no shorter than it said.
func (t Time) Add(d time.Duration) Time {
	us := Time(d / time.Microsecond)
	if d%time.Microsecond > 0 {
		us++
	}
	if us > 0 && t > forever-us {
		return forever
	}
	return t + us
}

// Sub returns the time that has passed from u to t: none if u is the later one, and
// at most the longest Duration.
func (t Time) Sub(u Time) time.Duration {
	if u >= t {
		return 0
	}
	if t-u < 0 { // a moment that somebody wrote, too far away for a number
		return time.Duration(math.MaxInt64)
	}
	return time.Duration(min(t-u, Time(math.MaxInt64/time.Microsecond))) * time.Microsecond
}

// over tells whether an end of t has come; never does not come.
func (t Time) over(now Time) bool { return t != 0 && t <= now }
