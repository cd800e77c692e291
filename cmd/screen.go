package cmd

import (
	"os"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
	"golang.org/x/text/width"
)

// screen is what can be shown where the output goes.
type screen struct {
	columns, rows int // 0: no limit
	colour        bool
}

// plain is a file or a pipe.
var plain = screen{}

// screen tells about standard output.
func (a *app) screen() screen {
	f, ok := a.stdout.(*os.File)
	if !ok || !isTerminal(f) {
		return plain
	}
	sc := screen{colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil {
		sc.columns, sc.rows = int(size.Col), int(size.Row)
	}
	return sc
}

// style is how a terminal shows a word.
type style string

// The styles (ECMA-48 SGR).
const (
	normal style = ""
	bold   style = "1"
	faint  style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// paint gives text a style, where there is colour.
func (sc screen) paint(st style, text string) string {
	if !sc.colour || st == normal || text == "" {
		return text
	}
	return "\x1b[" + string(st) + "m" + text + "\x1b[0m"
}

// runeWidth is how many columns a terminal needs for r.
func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// textWidth is how many columns a terminal needs for s.
func textWidth(s string) (n int) {
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// shorten cuts s to the columns that there are, and shows that by its last one.
func shorten(s string, columns int) string {
	if textWidth(s) <= columns {
		return s
	}
	n := 0
	for i, r := range s {
		if n += runeWidth(r); n > columns-1 {
			return s[:i] + strings.Repeat("…", min(1, columns))
		}
	}
	return s
}
