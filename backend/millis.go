package backend

import (
	"math"
	"time"
)

// Millis is n milliseconds, or the Duration that is next to that: numbers that others
// wrote may be too large for one, and must not come out with the other sign.
func Millis(n int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	return time.Duration(min(max(n, -most), most)) * time.Millisecond
}
