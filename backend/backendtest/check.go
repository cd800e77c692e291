package backendtest

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
)

// Finds wants the checks of a service to find something: of that level, under that
// name, in these words.
func Finds(t *testing.T, b backend.Backend, ttl time.Duration, level backend.Level, name, words string) {
	t.Helper()
	checks := b.(backend.Checker).Check(t.Context(), ttl)
	for _, c := range checks {
		if c.Name == name && c.Level == level && strings.Contains(c.Text, words) {
			if level != backend.OK && c.Hint == "" {
				t.Errorf("%+v does not say what to do", c)
			}
			return
		}
	}
	t.Errorf("want %s: %s: … %s …; found %+v", level, name, words, checks)
}
