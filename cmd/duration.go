package cmd

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// duration is a flag value: "30s", "1h30m", "2d", or a plain number of seconds.
type duration time.Duration

// String prints the value for help texts.
func (d *duration) String() string {
	if *d == 0 {
		return ""
	}
	return plainDuration(time.Duration(*d))
}

// plainDuration prints 30s, 10m and 365d where Go prints 30s, 10m0s and 8760h0m0s.
func plainDuration(d time.Duration) string {
	if day := 24 * time.Hour; d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Type names the value in help texts.
func (d *duration) Type() string { return "D" }

// Set parses the flag's argument.
func (d *duration) Set(s string) error {
	v, err := parseDuration(s)
	*d = duration(v)
	return err
}

// parseDuration reads what flock(1) and Go read, and days.
func parseDuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is no duration such as 30s, 5m, 1h30m, 2d or a number of seconds", s)
	if s == "" {
		return 0, bad
	}
	if seconds, err := strconv.ParseFloat(s, 64); err == nil {
		if strings.ContainsAny(s, "eExXpP_nN") {
			return 0, bad
		}
		return fromSeconds(seconds, s)
	}
	days, rest, found := strings.Cut(s, "d")
	if !found {
		days, rest = "", s
	}
	var total time.Duration
	if found {
		n, err := strconv.ParseUint(days, 10, 32)
		if err != nil {
			return 0, bad
		}
		if total, err = fromSeconds(float64(n)*24*3600, s); err != nil {
			return 0, err
		}
	}
	if rest != "" {
		v, err := time.ParseDuration(rest)
		if err != nil || (found && v < 0) {
			return 0, bad
		}
		if total += v; v > 0 && total < v {
			return 0, fmt.Errorf("%q is too long", s)
		}
	}
	if total < 0 {
		return 0, fmt.Errorf("%q is negative", s)
	}
	return total, nil
}

func fromSeconds(seconds float64, s string) (time.Duration, error) {
	switch {
	case seconds < 0:
		return 0, fmt.Errorf("%q is negative", s)
	case seconds > math.MaxInt64/float64(time.Second)/2:
		return 0, fmt.Errorf("%q is too long", s)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
