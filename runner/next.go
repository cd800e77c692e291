package runner

import (
	"time"

	"github.com/dlock/dlock/internal/boottime"
)

const forever = 1<<63 - 1

// untilNext is how long nothing need be done unless something happens. Go's timers do
// not count suspend: while any moment is awaited we wake each second to look at
// the clock that does.
func (l *life) untilNext() time.Duration {
	deadline, stop, asked := l.limits()
	next := earliest(l.guard.nextStart())
	if l.stop.killing {
		next = earliest(next, deadline.end, stop.end)
	} else {
		next = earliest(next, deadline.kill, l.stop.killAt, l.maxAt)
		if asked {
			next = earliest(next, stop.kill)
		}
	}
	wait := time.Duration(forever)
	if !next.IsZero() {
		wait = min(max(0, next.Sub(boottime.Now())), time.Second)
	}
	switch {
	case l.stop.killing:
		wait = min(wait, l.backoff)
	case l.exited:
		wait = min(wait, time.Second) // survivors that are not our children
	}
	return wait
}
