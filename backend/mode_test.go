package backend_test

import (
	"testing"

	"github.com/dlock/dlock/backend"
)

var (
	exclusive = backend.Mode{Kind: backend.Exclusive}
	shared    = backend.Mode{Kind: backend.Shared}
)

func slots(n int) backend.Mode { return backend.Mode{Kind: backend.Slots, N: n} }

func TestModeValid(t *testing.T) {
	for _, c := range []struct {
		mode backend.Mode
		want bool
	}{
		{exclusive, true},
		{shared, true},
		{slots(1), true},
		{slots(1000), true},
		{backend.Mode{}, false},
		{backend.Mode{Kind: backend.Exclusive, N: 1}, false},
		{backend.Mode{Kind: backend.Shared, N: 2}, false},
		{slots(0), false},
		{slots(-1), false},
		{backend.Mode{Kind: "weird"}, false},
		{backend.Mode{N: 3}, false},
	} {
		if got := c.mode.Valid(); got != c.want {
			t.Errorf("%+v valid: %v, want %v", c.mode, got, c.want)
		}
	}
}

func TestModeCovers(t *testing.T) {
	for _, c := range []struct {
		held, asked backend.Mode
		want        bool
	}{
		{exclusive, exclusive, true},
		{exclusive, shared, true},
		{exclusive, slots(3), true},
		{shared, exclusive, false},
		{shared, shared, true},
		{shared, slots(3), false},
		{slots(3), exclusive, false},
		{slots(3), shared, false},
		{slots(3), slots(3), true},
		{slots(1), slots(3), false},
		{slots(3), slots(1), false},
	} {
		if got := c.held.Covers(c.asked); got != c.want {
			t.Errorf("%v covers %v: %v, want %v", c.held, c.asked, got, c.want)
		}
	}
}

func TestModeString(t *testing.T) {
	for want, mode := range map[string]backend.Mode{"exclusive": exclusive, "shared": shared, "slots 3": slots(3)} {
		if got := mode.String(); got != want {
			t.Errorf("%+v is written %q, want %q", mode, got, want)
		}
	}
}
