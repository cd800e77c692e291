package testscripts

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// wallClock is what turns the wall clock into a number, or strips a time of its
// monotonic part: a step of the clock would then move deadlines.
var wallClock = regexp.MustCompile(`\.Unix(Milli|Micro|Nano)?\(\)|\.Round\(0\)|time\.Parse\(|time\.Unix`)

// TestNoDeadlineByTheWallClock: a step of the clock cannot be made in a test without
// harm, so the code is looked at. Only fences may begin at the wall clock, and what is
// merely shown be reckoned by it.
func TestNoDeadlineByTheWallClock(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") ||
			strings.HasPrefix(path, "../backend/backendtest/") { // where broken programs do it on purpose
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if wallClock.MatchString(line) && !strings.Contains(line, "func wallMi") && !strings.Contains(line, "backend.ClockCheck(") {
				t.Errorf("%s:%d uses the wall clock: %s", path, i+1, strings.TrimSpace(line))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
