package cmd

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	const none = -1
	for s, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "1": time.Second, "300": 5 * time.Minute, "1.5": 1500 * time.Millisecond, ".5": 500 * time.Millisecond,
		"1.5s": 1500 * time.Millisecond, "1ms": time.Millisecond, "999us": 999 * time.Microsecond, "999µs": 999 * time.Microsecond, "1ns": 1,
		"1h30m": 90 * time.Minute, "2d": 48 * time.Hour, "1d12h": 36 * time.Hour, "0d": 0, "10000d": 240000 * time.Hour,
		"+5s": 5 * time.Second,
		"":    none, " ": none, "s": none, "d": none, "1 s": none, "soon": none, "5x": none, "1d2": none, "1.5d": none, "-1d": none,
		"1d-1h": none, "1d1d": none, "1h1d": none, "-1": none, "-1s": none, "-0.1": none, "1e3": none, "1e3s": none, "0x10": none, "inf": none,
		"nan": none, "NaN": none, "Infinity": none, "1_000": none,
		"99999999999999999999": none, "9999999999d": none, "4294967295d": none, "300000h200000000000m": none,
		"106751d23h59m": none, "9223372036": none,
	} {
		got, err := parseDuration(s)
		if want == none && err == nil || want != none && (err != nil || got != want) {
			t.Errorf("%q is %v, %v; want %v", s, got, err, want)
		}
	}
}

func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"1", "1.5s", "2d3h", "d", "-1", "1e3", "106751d", "\xff", "9999999999d1h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseDuration(s)
		if err != nil {
			return
		}
		if d < 0 {
			t.Fatalf("%q is %v", s, d)
		}
		if again, err := parseDuration(d.String()); err != nil || again != d {
			t.Errorf("%q is %v, which reads as %v, %v", s, d, again, err)
		}
	})
}

func TestShort(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "0.4s": 420 * time.Millisecond, "9.9s": 9900 * time.Millisecond, "12s": 12900 * time.Millisecond, "3m12s": 192 * time.Second,
		"3m02s": 182 * time.Second, "2h05m": 125*time.Minute + 59*time.Second, "3d4h": 76 * time.Hour,
	} {
		if got := short(d); got != want {
			t.Errorf("%v is written %q, want %q", d, got, want)
		}
	}
}
