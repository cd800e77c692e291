package cmd

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/dlock/dlock/backend"
)

// ui prints every message. The rule for them: to stderr only, one line, in lower case
// and without a full stop; "dlock: error: LOCK: what happened" and then
// "dlock: hint: what to type next". What others wrote is escaped.
type ui struct {
	out     io.Writer
	quiet   bool
	verbose bool
	json    bool

	mu      sync.Mutex
	queue   chan string   // to the goroutine that prints; nil where none is needed
	printed chan struct{} // closed when it has ended
}

// fail reports a failure, also when quiet.
func (u *ui) fail(lock, msg, hint string) {
	u.print("error", lock, msg)
	if hint != "" && !u.quiet {
		u.print("hint", "", hint)
	}
}

// warn reports what went wrong and does not end dlock, also when quiet.
func (u *ui) warn(lock, format string, args ...any) {
	u.print("warning", lock, fmt.Sprintf(format, args...))
}

// hint says what to do next.
func (u *ui) hint(format string, args ...any) { u.unlessQuiet("hint", "", format, args) }

// note reports an event that a person at the terminal wants to know.
func (u *ui) note(lock, format string, args ...any) { u.unlessQuiet("", lock, format, args) }

// detail is for --verbose.
func (u *ui) detail(lock, format string, args ...any) {
	if u.verbose {
		u.unlessQuiet("", lock, format, args)
	}
}

func (u *ui) unlessQuiet(level, lock, format string, args []any) {
	if !u.quiet {
		u.print(level, lock, fmt.Sprintf(format, args...))
	}
}

func (u *ui) print(level, lock, msg string) {
	if u.json {
		u.write(jsonLine(level, lock, msg))
		return
	}
	parts := []string{"dlock"}
	for _, part := range []string{level, safe(lock), safe(msg)} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	u.write(strings.Join(parts, ": ") + "\n")
}

func jsonLine(level, lock, msg string) string {
	if level == "" {
		level = "info"
	}
	var line strings.Builder
	_ = writeJSON(&line, struct {
		Time  time.Time `json:"time"`
		Level string    `json:"level"`
		Lock  string    `json:"lock,omitempty"`
		Msg   string    `json:"msg"`
	}{time.Now(), level, lock, msg}, false) // a Builder takes all
	return line.String()
}

const (
	queueLength = 100         // messages; what does not fit is dropped
	flushLimit  = time.Second // how long the last messages may take
)

// write hands text to a goroutine that prints it: a stderr that nobody reads must not
// keep a command from being stopped, or a lock from being released.
func (u *ui) write(text string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.queue == nil {
		u.queue, u.printed = make(chan string, queueLength), make(chan struct{})
		go u.printQueue(u.queue, u.printed)
	}
	select {
	case u.queue <- text:
	default:
	}
}

func (u *ui) printQueue(queue <-chan string, printed chan<- struct{}) {
	defer close(printed)
	for text := range queue {
		_, _ = io.WriteString(u.out, text)
	}
}

// flush waits, but not for long, until all is printed.
func (u *ui) flush() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.queue == nil {
		return
	}
	close(u.queue)
	select {
	case <-u.printed:
	case <-time.After(flushLimit):
	}
	u.queue = nil
}

// safe makes text of unknown origin fit for a terminal: control characters and those
// that only steer the writing direction are shown as escapes.
func safe(s string) string {
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "�") {
		if r != '\n' && unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// shellQuote makes s one word for a shell.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./@=:,+%", r))
	}
	if s != "" && !strings.HasPrefix(s, "-") && strings.TrimFunc(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// describeHolders reads "held by root@web1 (pid 4242, ./backup.sh) for 3m12s".
func describeHolders(holders []backend.Holder, ahead int) string {
	var parts []string
	for i, h := range holders {
		if i == 3 {
			parts = append(parts, fmt.Sprintf("and %d more", len(holders)-i))
			break
		}
		parts = append(parts, describeHolder(h))
	}
	if len(parts) == 0 {
		parts = []string{"held by somebody else"}
		if ahead > 0 {
			parts[0] = "promised to those in line"
		}
	}
	if ahead > 0 {
		parts = append(parts, fmt.Sprintf("%d ahead in line", ahead))
	}
	return strings.Join(parts, ", ")
}

func describeHolder(h backend.Holder) string {
	s := "held by " + describeOwner(h.Owner)
	if h.Tail {
		return fmt.Sprintf("kept by --min-hold of %s for another %v", describeOwner(h.Owner), short(h.Left))
	}
	if h.Held >= 0 {
		s += " for " + short(h.Held)
	}
	if h.Leased {
		s += fmt.Sprintf(", %s left", short(h.Left))
	}
	if h.Owner.Kind == backend.Foreign && !h.Leased && h.Owner.PID == 0 {
		s += ", no end is known"
	}
	if h.Revoked {
		s += ", revoked"
	}
	return s
}

// describeOwner reads "root@web1 (pid 4242, ./backup.sh, reason: nightly)".
func describeOwner(o backend.Owner) string {
	about := origin(o)
	if o.Command != "" {
		about = append(about, o.Command)
	}
	if o.Reason != "" {
		about = append(about, "reason: "+o.Reason)
	}
	return withRemarks(o, about)
}

// who is describeOwner without command and reason.
func who(o backend.Owner) string { return withRemarks(o, origin(o)) }

func withRemarks(o backend.Owner, about []string) string {
	name := o.User
	if name == "" {
		name = "somebody"
	}
	if o.Host != "" {
		name += "@" + o.Host
	}
	if len(about) == 0 {
		return name
	}
	return name + " (" + strings.Join(about, ", ") + ")"
}

// origin tells how somebody came by a lock.
func origin(o backend.Owner) (about []string) {
	switch o.Kind {
	case backend.Foreign:
		about = append(about, "not dlock")
	case backend.Detached:
		about = append(about, "dlock acquire")
	}
	if o.PID != 0 && o.Kind != backend.Detached {
		about = append(about, fmt.Sprintf("pid %d", o.PID))
	}
	return about
}

// short prints a duration as a person reads it: 0.4s, 3m12s, 2h05m, 3d4h.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + "s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// ask prints a question and leaves the cursor behind it.
func (u *ui) ask(question string) { u.write("dlock: " + safe(question)) }
