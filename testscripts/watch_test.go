package testscripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// tmux is a terminal that shows what a person would see, and not what was sent.
type tmux struct {
	t      *testing.T
	dir    string
	socket string
}

// newTmux starts a shell in a terminal of that size, with dlock and a directory of locks.
func newTmux(t *testing.T, columns, rows int) *tmux {
	t.Helper()
	m := &tmux{t: t, dir: t.TempDir()}
	m.socket = filepath.Join(m.dir, "tmux")
	rc := filepath.Join(m.dir, "rc")
	if err := os.WriteFile(rc, []byte("PS1='rea''dy> '\nunset HISTFILE\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := m.command("-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(columns), "-y", strconv.Itoa(rows),
		"bash", "--noprofile", "--rcfile", rc, "-i")
	cmd.Env = append(os.Environ(), "DLOCK_BACKEND=file://"+m.locks(), "LC_ALL=C.UTF-8", "TERM=xterm", "NO_COLOR=")
	cmd.Dir = m.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v\n%s(apt-get install tmux)", err, out)
	}
	t.Cleanup(func() { _ = m.command("kill-server").Run() })
	m.await("the prompt", func(screen string) bool { return strings.HasSuffix(screen, "ready>") })
	return m
}

func (m *tmux) locks() string { return filepath.Join(m.dir, "locks") }

func (m *tmux) command(args ...string) *exec.Cmd {
	return exec.Command("tmux", append([]string{"-S", m.socket}, args...)...)
}

func (m *tmux) do(args ...string) string {
	m.t.Helper()
	out, err := m.command(args...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("tmux %q: %v\n%s", args, err, out)
	}
	return string(out)
}

func (m *tmux) typed(line string) { m.t.Helper(); m.do("send-keys", "-l", line+"\n") }

// screen is what the terminal shows.
func (m *tmux) screen() string {
	m.t.Helper()
	return strings.TrimRight(m.do("capture-pane", "-p"), "\n ")
}

// await waits until the terminal shows something, and returns it.
func (m *tmux) await(what string, shown func(screen string) bool) string {
	m.t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		screen := m.screen()
		if shown(screen) {
			return screen
		}
		if time.Now().After(limit) {
			m.t.Fatalf("not seen: %s; the screen:\n%s", what, screen)
		}
	}
}

func (m *tmux) awaitWords(words ...string) string {
	m.t.Helper()
	return m.await(fmt.Sprintf("%q", words), func(screen string) bool { return containsAll(screen, words) })
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// child is the process that the terminal's shell runs.
func (m *tmux) child() int {
	m.t.Helper()
	shell := strings.TrimSpace(m.do("display-message", "-p", "#{pane_pid}"))
	text, err := os.ReadFile("/proc/" + shell + "/task/" + shell + "/children")
	if err != nil {
		m.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		m.t.Fatalf("the shell's children: %q", text)
	}
	return pid
}

// dlock runs dlock on the locks that the terminal shows.
func (m *tmux) dlock(args ...string) string {
	m.t.Helper()
	out, err := exec.Command("dlock", append([]string{"-b", "file://" + m.locks()}, args...)...).Output()
	if err != nil {
		m.t.Fatalf("dlock %q: %v", args, err)
	}
	return strings.TrimSpace(string(out))
}

// widest is the longest line of a screen.
func widest(screen string) (n int) {
	for line := range strings.Lines(screen) {
		n = max(n, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
	}
	return n
}

func TestWatchRedrawsInPlace(t *testing.T) {
	m := newTmux(t, 80, 24)
	token := m.dlock("acquire", "--ttl", "1h", "--reason", "https://ci.example.org/job/deploy/4242/console", "deploy")
	m.dlock("acquire", "--ttl", "1h", "--reason", strings.Repeat("日本", 50), "wide")
	m.typed("echo before; dlock inspect --watch --interval 0.1")
	screen := m.awaitWords("NAME", "HOLDER", "deploy", "wide", "held: 2, waiting: 0, problems: 0")
	if strings.Contains(screen, "before") || strings.Contains(screen, "ready>") {
		t.Errorf("not a screen of its own:\n%s", screen)
	}
	if lines := strings.Count(screen, "\n") + 1; lines != 6 {
		t.Errorf("%d lines, want a heading, a summary and a table with two locks:\n%s", lines, screen)
	}

	m.dlock("release", "deploy", token) // a line less: what is below it must go
	m.await("one lock", func(screen string) bool {
		return strings.Contains(screen, "held: 1,") && !strings.Contains(screen, "deploy") && strings.Count(screen, "wide") == 1
	})

	m.do("send-keys", "C-c")
	m.typed("echo code $?")
	screen = m.awaitWords("before", "code 130\nready>")
	if strings.Contains(screen, "NAME") {
		t.Errorf("the terminal was not given back:\n%s", screen)
	}
	if m.do("display-message", "-p", "#{cursor_flag}#{alternate_on}") != "10\n" {
		t.Error("no cursor, or still the other screen")
	}
}

func TestWatchFollowsTheWindow(t *testing.T) {
	m := newTmux(t, 200, 24)
	for i := range 30 {
		m.dlock("acquire", "--ttl", "1h", "--reason", "a reason that is long enough to be cut", fmt.Sprintf("a-lock-with-a-long-name-%02d", i))
	}
	m.typed("dlock inspect --watch --interval 1h") // it draws again only because of the window
	m.awaitWords("TOKEN", "FENCE", "a-lock-with-a-long-name-00", "long enough to be cut", "… 11 more lines")

	for _, columns := range []int{80, 40, 20, 120} {
		m.do("resize-window", "-x", strconv.Itoa(columns), "-y", "12")
		screen := m.await(fmt.Sprintf("%d columns", columns), func(screen string) bool {
			return strings.Contains(screen, "… 23 more lines") && widest(screen) <= columns && widest(screen) > columns*2/3
		})
		if lines := strings.Count(screen, "\n") + 1; lines != 12 || !strings.Contains(screen, "NAME") || !strings.Contains(screen, "held: 30") {
			t.Errorf("%d columns, %d lines:\n%s", columns, lines, screen)
		}
		if columns == 80 && !containsAll(screen, []string{"STATE", "HOLDER", "REASON", "HELD", "LEFT", "WAITERS"}) {
			t.Errorf("80 columns show too little:\n%s", screen)
		}
	}

	if err := syscall.Kill(m.child(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	m.await("the prompt", func(screen string) bool { return strings.HasSuffix(screen, "ready>") })
	if m.do("display-message", "-p", "#{cursor_flag}#{alternate_on}") != "10\n" {
		t.Error("no cursor, or still the other screen")
	}
}

func TestWatchStopsAndContinues(t *testing.T) {
	m := newTmux(t, 80, 24)
	token := m.dlock("acquire", "--ttl", "1h", "j")
	m.typed("dlock inspect --watch --interval 0.1 j")
	m.awaitWords("state", "held", "time left", token)
	m.do("send-keys", "C-z")
	screen := m.awaitWords("Stopped", "ready>")
	if strings.Contains(screen, token) {
		t.Errorf("the terminal was not given back:\n%s", screen)
	}
	m.typed("fg")
	m.awaitWords("state", token)
	m.do("send-keys", "C-c")
	m.awaitWords("Stopped", "ready>")
}
