package zookeeper

import (
	"testing"
	"time"

	"github.com/dlock/dlock/internal/boottime"
)

func at(seconds float64) boottime.Instant {
	return boottime.Instant(0).Add(time.Hour + time.Duration(seconds*float64(time.Second)))
}

// TestClock goes through what a session of 10 s sends: c connects, p is a frame that was
// answered but proves nothing by itself, w a write that was acknowledged.
func TestClock(t *testing.T) {
	type step struct {
		what byte
		at   float64
	}
	for _, tt := range []struct {
		name  string
		steps []step
		ends  float64 // when the session may end
	}{
		{"a connection counts at once", []step{{'c', 1}}, 11},
		{"a write does not count itself", []step{{'c', 0}, {'w', 2.5}}, 10},
		{"the one before the last does", []step{{'c', 0}, {'w', 2.5}, {'w', 5}}, 12.5},
		{"and so on", []step{{'c', 0}, {'w', 2.5}, {'w', 5}, {'w', 7.5}}, 15},
		{"answers without writes prove nothing", []step{{'c', 0}, {'p', 3.3}, {'p', 6.6}, {'p', 9.9}}, 10},
		{"a write proves what was long before it", []step{{'c', 0}, {'p', 3.3}, {'p', 6.6}, {'w', 9.5}}, 16.6},
		{"and nothing that was just before it", []step{{'c', 0}, {'p', 3.3}, {'p', 6.6}, {'p', 8.9}, {'w', 9}}, 13.3},
		{"writes in a row", []step{{'c', 0}, {'w', 3}, {'w', 3.1}, {'w', 3.2}}, 10},
		{"a new connection starts anew", []step{{'c', 0}, {'p', 1}, {'c', 3}, {'w', 3.1}, {'w', 4}}, 13},
		{"a late renewal never shortens", []step{{'c', 0}, {'w', 4}, {'w', 8}, {'w', 8.5}}, 14},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c clock
			for _, s := range tt.steps {
				switch s.what {
				case 'c':
					c.connected(at(s.at), 10*time.Second)
				case 'p':
					c.heard(at(s.at))
				case 'w':
					c.heard(at(s.at))
					c.wrote(at(s.at))
				}
			}
			if got := c.base.Add(c.granted); got != at(tt.ends) {
				t.Errorf("the session may end %v too late", got.Sub(at(tt.ends)))
			}
			// However little is left, the margin for the rates of clocks is that of all of it.
			lease := c.lease(at(tt.ends - 6))
			if margin := at(tt.ends).Sub(lease.Deadline()); margin < 100*time.Millisecond-time.Microsecond || margin > 101*time.Millisecond {
				t.Errorf("the deadline is %v before the end, want 1 %% of 10s", margin)
			}
			if lease.Every != 2500*time.Millisecond {
				t.Errorf("renewed every %v, want a quarter of the timeout", lease.Every)
			}
		})
	}
}

func TestClockOfALongWaitStaysSmall(t *testing.T) {
	var c clock
	c.connected(at(0), 10*time.Second)
	for i := range 100_000 {
		c.heard(at(float64(i)))
	}
	if n := len(c.answered); n > 1000 {
		t.Errorf("%d frames are remembered", n)
	}
	last := at(100_000)
	c.wrote(last)
	if left := c.base.Add(c.granted).Sub(last); left < 4*time.Second {
		t.Errorf("%v are left after a long wait, want about 5/12 of the timeout at least", left)
	}
}
