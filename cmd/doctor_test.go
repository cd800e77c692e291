package cmd

import (
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
)

func TestRoundTripIsHeldAgainstTheLease(t *testing.T) {
	for _, c := range []struct {
		longest, ttl time.Duration
		want         backend.Level
	}{
		{time.Millisecond, 30 * time.Second, backend.OK},
		{1499 * time.Millisecond, 30 * time.Second, backend.OK},
		{1500 * time.Millisecond, 30 * time.Second, backend.Warn},
		{9999 * time.Millisecond, 30 * time.Second, backend.Warn},
		{10 * time.Second, 30 * time.Second, backend.Fail},
		{100 * time.Millisecond, time.Second, backend.Warn},
	} {
		if got := judgeTrip(c.longest, c.ttl); got.Level != c.want {
			t.Errorf("%v of %v: %+v, want %s", c.longest, c.ttl, got, c.want)
		}
	}
}
