package boottime

import (
	"testing"
	"time"
)

func TestNowNeverRunsBack(t *testing.T) {
	last := Now()
	for range 1000 {
		now := Now()
		if now.Sub(last) < 0 {
			t.Fatalf("clock ran back by %v", last.Sub(now))
		}
		last = now
	}
}

func TestArithmetic(t *testing.T) {
	i := Instant(5 * time.Second)
	if got := i.Add(time.Second).Sub(i); got != time.Second {
		t.Errorf("Add then Sub = %v, want 1s", got)
	}
	if i.IsZero() || !Instant(0).IsZero() {
		t.Error("only the zero Instant is zero")
	}
}

func TestBootIDIsStable(t *testing.T) {
	if a, b := BootID(), BootID(); a != b {
		t.Errorf("boot id changed from %q to %q", a, b)
	}
}
