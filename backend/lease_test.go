package backend_test

import (
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

func TestLeaseArithmetic(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	for _, c := range []struct {
		ttl, grace                   time.Duration
		deadline, kill, stop, shrunk time.Duration // after the request was sent; the gap itself
	}{
		{1 * s, 0, 980 * ms, 730 * ms, 730 * ms, 0},
		{1 * s, 5 * s, 980 * ms, 730 * ms, 980*ms - s/3, s / 3},
		{1 * s, 25 * s, 980 * ms, 730 * ms, 980*ms - s/3, s / 3},
		{5 * s, 0, 4950 * ms, 4700 * ms, 4700 * ms, 0},
		{5 * s, 5 * s, 4950 * ms, 4700 * ms, 4950*ms - 5*s/3, 5 * s / 3},
		{5 * s, 25 * s, 4950 * ms, 4700 * ms, 4950*ms - 5*s/3, 5 * s / 3},
		{30 * s, 0, 29700 * ms, 29100 * ms, 29100 * ms, 0},
		{30 * s, 5 * s, 29700 * ms, 29100 * ms, 24100 * ms, 5 * s},
		{30 * s, 25 * s, 29700 * ms, 29100 * ms, 19700 * ms, 10 * s},
		{time.Hour, 0, 3564 * s, 3492 * s, 3492 * s, 0},
		{time.Hour, 5 * s, 3564 * s, 3492 * s, 3487 * s, 5 * s},
		{time.Hour, 25 * s, 3564 * s, 3492 * s, 3467 * s, 25 * s},
	} {
		const sent boottime.Instant = 77e9
		l := backend.Lease{Sent: sent, TTL: c.ttl, Every: c.ttl / 3}
		for _, m := range []struct {
			what      string
			got, want time.Duration
		}{
			{"deadline", l.Deadline().Sub(sent), c.deadline},
			{"kill", l.KillAt().Sub(sent), c.kill},
			{"stop", l.StopAt(c.grace).Sub(sent), c.stop},
			{"short grace", l.ShortGrace(c.grace), c.shrunk},
		} {
			if m.got != m.want {
				t.Errorf("ttl %v, grace %v: %s %v, want %v", c.ttl, c.grace, m.what, m.got, m.want)
			}
		}
	}
}

func TestLeaseWithoutEnd(t *testing.T) {
	l := backend.Lease{Sent: 1}
	if l.Ends() || l.ShortGrace(time.Hour) != time.Hour {
		t.Error("a hold without an end leaves room for any grace")
	}
	if l.TTL = 1; !l.Ends() {
		t.Error("a lease ends")
	}
}
