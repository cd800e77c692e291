package cmd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
)

func crowded() []backend.Status {
	return []backend.Status{{
		Name: "nightly-backup-of-the-large-database",
		Holders: []backend.Holder{{
			Token: "0123456789abcdef", Mode: backend.Mode{Kind: backend.Exclusive}, Fence: 1796088546510359,
			Owner: backend.Owner{Kind: backend.Run, User: "backup", Host: "db-primary.example.org", PID: 4242,
				Command: "/usr/local/bin/backup.sh --all --verbose", Reason: "https://ci.example.org/job/4242/console"},
			Held: 3 * time.Minute, Leased: true, Left: 25 * time.Second,
		}},
		Waiters:  make([]backend.Waiter, 50),
		Problems: []string{"waiter 7, pid 99, is stopped"},
	}, {Name: "日本語の長い名前のロック", Waiters: make([]backend.Waiter, 1)}}
}

func TestTableFits(t *testing.T) {
	natural := textWidth(tableLines(plain, crowded())[1])
	for columns := 1; columns <= natural+10; columns++ {
		for i, line := range tableLines(screen{columns: columns}, crowded()) {
			if w := textWidth(line); w > max(columns, 25) && !strings.HasPrefix(line, "  ! ") {
				t.Errorf("line %d is %d wide in %d columns: %q", i, w, columns, line)
			}
		}
	}
	for columns, want := range map[int]string{
		25:          "NAME HOLDER",
		60:          "NAME STATE HOLDER HELD LEFT WAITERS",
		80:          "NAME STATE HOLDER PID COMMAND REASON HELD LEFT WAITERS",
		100:         "NAME STATE MODE HOLDER PID COMMAND REASON HELD LEFT WAITERS",
		natural:     "NAME STATE MODE HOLDER PID COMMAND REASON HELD LEFT FENCE TOKEN WAITERS",
		natural + 9: "NAME STATE MODE HOLDER PID COMMAND REASON HELD LEFT FENCE TOKEN WAITERS",
	} {
		lines := tableLines(screen{columns: columns}, crowded())
		if got := strings.Join(strings.Fields(lines[0]), " "); got != want {
			t.Errorf("%d columns show %s, want %s", columns, got, want)
		}
	}
}

func TestTableDropsFirstWhatSaysNothing(t *testing.T) {
	list := crowded()
	list[0].Holders[0].Owner.Reason, list[0].Holders[0].Leased = "", false
	head := tableLines(screen{columns: 80}, list)[0]
	if strings.Contains(head, "REASON") || strings.Contains(head, "LEFT") || !strings.Contains(head, "COMMAND") {
		t.Errorf("80 columns show %s", head)
	}
	if head := tableLines(plain, list)[0]; !strings.Contains(head, "REASON") {
		t.Errorf("a pipe gets %s, want all columns", head)
	}
}

func TestColoursOnlyOnAScreen(t *testing.T) {
	if text := fmt.Sprint(tableLines(plain, crowded())); strings.Contains(text, "\x1b") {
		t.Errorf("escapes in %q", text)
	}
	lines := tableLines(screen{columns: 80, colour: true}, crowded())
	if !strings.Contains(lines[1], "\x1b[32mheld\x1b[0m") || !strings.HasPrefix(lines[2], "\x1b[31m  ! waiter 7") {
		t.Errorf("no colours in %q", lines)
	}
	for i, line := range tableLines(screen{columns: 80}, crowded()) {
		if bare := clip(lines[i], 0); strings.NewReplacer("\x1b[0m", "", "\x1b[1m", "", "\x1b[2m", "", "\x1b[31m", "", "\x1b[32m", "", "\x1b[33m", "").Replace(bare) != line {
			t.Errorf("colours change the layout:\n%q\n%q", lines[i], line)
		}
	}
}

func TestShortenAndClip(t *testing.T) {
	for _, c := range []struct {
		text           string
		columns        int
		short, clipped string
	}{
		{"abc", 3, "abc", "abc"},
		{"abcd", 3, "ab…", "abc"},
		{"日本語", 6, "日本語", "日本語"},
		{"日本語", 5, "日本…", "日本"},
		{"日本語", 4, "日…", "日本"},
		{"e\u0301a\u0301", 2, "e\u0301a\u0301", "e\u0301a\u0301"},
		{"abc", 1, "…", "a"},
	} {
		if got := shorten(c.text, c.columns); got != c.short || textWidth(got) > c.columns {
			t.Errorf("%q in %d columns: %q, want %q", c.text, c.columns, got, c.short)
		}
		if got := clip(c.text, c.columns); got != c.clipped {
			t.Errorf("%q clipped to %d: %q, want %q", c.text, c.columns, got, c.clipped)
		}
	}
	if got := clip("\x1b[31mabcd\x1b[0m", 2); got != "\x1b[31mab\x1b[0m" {
		t.Errorf("clipped to %q: the style must end", got)
	}
}
