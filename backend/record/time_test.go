package record

import (
	"math"
	"testing"
	"time"
)

func TestAdd(t *testing.T) {
	for _, c := range []struct {
		from Time
		d    time.Duration
		want Time
	}{
		{1000, 0, 1000},
		{1000, time.Millisecond, 2000},
		{1000, 1, 1001}, // rounded up
		{1000, 1001, 1002},
		{forever, 1, forever},
		{forever - 1, time.Hour, forever},
		{1, math.MaxInt64, 1 + math.MaxInt64/1000 + 1},
	} {
		if got := c.from.Add(c.d); got != c.want {
			t.Errorf("%d.Add(%d) = %d, want %d", c.from, c.d, got, c.want)
		}
	}
}

func TestSub(t *testing.T) {
	for _, c := range []struct {
		t, u Time
		want time.Duration
	}{
		{2000, 1000, time.Millisecond},
		{1000, 1000, 0},
		{1000, 2000, 0},
		{1, forever, 0},
		{forever, 1, math.MaxInt64 / 1000 * 1000},
	} {
		if got := c.t.Sub(c.u); got != c.want {
			t.Errorf("%d.Sub(%d) = %d, want %d", c.t, c.u, got, c.want)
		}
	}
}
