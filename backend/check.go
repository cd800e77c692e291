package backend

import (
	"context"
	"fmt"
	"time"
)

// Level is how bad it is what a check has found.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // locks work, and a fault may break what they promise
	Fail Level = "fail" // locks do not work, or do not exclude
)

// Check is one thing that was looked at, for people to read.
type Check struct {
	Name  string `json:"name"`
	Level Level  `json:"level"`
	Text  string `json:"text"`           // what was found
	Hint  string `json:"hint,omitempty"` // what to do
}

// Checker is a service that can tell how well it is set up for locks.
type Checker interface {
	// Check looks at the settings of the service as its administrator would, for leases
	// of that length. It changes nothing. What cannot be seen is a check of its own.
	Check(ctx context.Context, ttl time.Duration) []Check
}

// Good is a check that found nothing to do.
func Good(name, format string, args ...any) Check {
	return Check{Name: name, Level: OK, Text: fmt.Sprintf(format, args...)}
}

// Found is a check that found something to do.
func Found(name string, level Level, hint, format string, args ...any) Check {
	return Check{Name: name, Level: level, Text: fmt.Sprintf(format, args...), Hint: hint}
}

// ClockCheck tells how far the service's clock is from ours. It is never bad: no rule
// compares the two.
func ClockCheck(theirs, ours time.Time) Check {
	ahead, word := theirs.Sub(ours), "ahead of"
	if ahead < 0 {
		ahead, word = -ahead, "behind"
	}
	return Good("clock", "%v %s this host's; no lease depends on that", ahead.Round(time.Millisecond), word)
}
