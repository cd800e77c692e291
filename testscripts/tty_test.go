package testscripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
)

// terminal is an interactive shell in a pseudo terminal, with dlock in its PATH.
type terminal struct {
	t   *testing.T
	dir string
	tty *os.File

	mu     sync.Mutex
	screen strings.Builder
	seen   int // what await has passed
}

const prompt = "ready> "

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	term := &terminal{t: t, dir: t.TempDir()}
	rc := filepath.Join(term.dir, "rc")
	// Split, so that the echo of a line that is typed is no prompt.
	if err := os.WriteFile(rc, []byte("PS1='rea''dy> '\nunset HISTFILE\nbind 'set enable-bracketed-paste off'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("bash", "--noprofile", "--rcfile", rc, "-i")
	shell.Dir = term.dir
	shell.Env = append(os.Environ(), "PATH="+binDir+":"+os.Getenv("PATH"), "TERM=vt100",
		"DLOCK_BACKEND=file://"+filepath.Join(term.dir, "locks"))
	tty, err := pty.StartWithSize(shell, &pty.Winsize{Rows: 24, Cols: 200})
	if err != nil {
		t.Fatal(err)
	}
	term.tty = tty
	t.Cleanup(func() {
		_ = shell.Process.Kill()
		_ = shell.Wait()
		tty.Close()
	})
	go term.read()
	term.await(prompt)
	return term
}

func (term *terminal) read() {
	buf := make([]byte, 4096)
	for {
		n, err := term.tty.Read(buf)
		term.mu.Lock()
		term.screen.Write(buf[:n])
		term.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.String()
}

func (term *terminal) typed(s string) {
	term.t.Helper()
	if _, err := term.tty.WriteString(s); err != nil {
		term.t.Fatal(err)
	}
}

// await waits until the words appear, in this order, after those awaited before.
func (term *terminal) await(words ...string) {
	term.t.Helper()
	for _, word := range words {
		for limit := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			text := term.text()
			if at := strings.Index(text[term.seen:], word); at >= 0 {
				term.seen += at + len(word)
				break
			}
			if time.Now().After(limit) {
				term.t.Fatalf("%q does not appear; the screen: %q", word, text)
			}
		}
	}
}

// until waits for a condition outside the terminal.
func (term *terminal) until(what string, done func() bool) {
	term.t.Helper()
	for limit := time.Now().Add(patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			term.t.Fatalf("timed out: %s; the screen: %q", what, term.text())
		}
	}
}

func (term *terminal) exists(name string) func() bool {
	return func() bool {
		_, err := os.Stat(filepath.Join(term.dir, name))
		return err == nil
	}
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestTerminalEditor(t *testing.T) {
	term := newTerminal(t)
	term.typed("stty -a | md5sum >before; dlock run j -- vi -u NONE -n note.txt\n")
	term.await("note.txt")
	term.typed("iwritten under a lock\x1b:wq\r")
	term.await(prompt)
	term.typed("stty -a | md5sum >after; cmp before after && echo terminal' 'as before; cat note.txt\n")
	term.await("terminal as before", "written under a lock", prompt)
}

func TestTerminalPassword(t *testing.T) {
	term := newTerminal(t)
	term.typed("dlock run j -- bash -c 'read -rsp \"pass\"\"word: \" p </dev/tty; echo; echo \"got ${#p}\"' </dev/null\n")
	term.await("password: ")
	term.typed("secret\n")
	term.await("got 6", prompt)
	if strings.Contains(term.text(), "secret") {
		t.Errorf("the password was shown: %q", term.text())
	}
}

func TestTerminalInterrupt(t *testing.T) {
	term := newTerminal(t)
	term.typed("for i in 1 2 3; do dlock run j -- sh -c 'trap \"echo interrupted; trap - INT; kill -INT \\$\\$\" INT; touch in; while :; do sleep 0.05; done'; done; echo code $?\n")
	term.until("the command's start", term.exists("in"))
	term.typed(ctrlC)
	// Once, and the loop around it ends, as it would without dlock.
	term.await("interrupted", prompt)
	term.typed("echo code $?; dlock run -n j -- echo lock is free\n")
	term.await("code 130", "\r\nlock is free", prompt)
	if n := strings.Count(term.text(), "interrupted\r\n"); n != 1 {
		t.Errorf("the command saw %d interrupts; the screen: %q", n, term.text())
	}
}

func TestTerminalStopAndContinue(t *testing.T) {
	term := newTerminal(t)
	term.typed("dlock run j -- sh -c 'touch in; read x; echo \"got $x\"'\n")
	term.until("the command's start", term.exists("in"))
	term.typed(ctrlZ)
	term.await("Stopped", prompt)
	term.typed("dlock run -n j -- true; echo code $?\n") // it still holds the lock
	term.await("busy: held by", "code 75", prompt)
	term.typed("fg\n")
	term.await("dlock run j")
	term.typed("on we go\n")
	term.await("got on we go", prompt)
	term.typed("dlock run -n j -- echo lock is free\n")
	term.await("\r\nlock is free", prompt)
}

func TestTerminalInterruptOfAWaiter(t *testing.T) {
	term := newTerminal(t)
	term.typed("token=$(dlock acquire j)\n")
	term.await(prompt)
	term.typed("for i in 1 2 3; do dlock run j -- true; done\n")
	term.await("waiting: held by")
	term.typed(ctrlC)
	term.await(prompt)
	term.typed("echo code $?; dlock inspect j; dlock release j $token && dlock run -n j -- echo lock is free\n")
	term.await("code 130", "held", "\r\nlock is free", prompt)
	if strings.Contains(term.text(), "waiter 1") || strings.Count(term.text(), "waiting: held by") != 1 {
		t.Errorf("the screen: %q", term.text())
	}
}

func TestTerminalAsksBeforeForce(t *testing.T) {
	term := newTerminal(t)
	term.typed("token=$(dlock acquire --reason testing j)\n")
	term.await(prompt)
	term.typed("dlock release --force j ${token%%-*}\n")
	term.await("testing", "end this hold? [y/N] ")
	term.typed("n\n")
	term.await("nothing was changed", prompt)
	term.typed("dlock release --force j ${token%%-*}; echo code $?\n")
	term.await("end this hold? [y/N] ")
	term.typed("y\n")
	term.await("code 0", prompt)
	term.typed("dlock run -n j -- echo lock is free\n")
	term.await("\r\nlock is free", prompt)
}

func TestTerminalPipeline(t *testing.T) {
	term := newTerminal(t)
	term.typed("dlock run j -- sh -c 'echo from the command; read x </dev/tty; echo \"got $x\"' | cat\n")
	term.await("\r\nfrom the command")
	term.typed("input\n")
	term.await("got input", prompt)
}

func TestTerminalStopOfAWaiterLeavesTheLine(t *testing.T) {
	term := newTerminal(t)
	term.typed("token=$(dlock acquire --ttl 1h j)\n")
	term.await(prompt)
	term.typed("dlock run j -- echo done' 'waiting\n")
	term.await("waiting: held by")
	term.typed(ctrlZ)
	term.await("Stopped", prompt)
	term.typed("dlock inspect j; dlock release j $token && dlock run -n j -- echo lock is free\n")
	term.await("held", "\r\nlock is free", prompt)
	if strings.Contains(term.text(), "waiter 1") {
		t.Errorf("the stopped waiter is still in line: %q", term.text())
	}
	term.typed("fg\n")
	term.await("done waiting", prompt)
	term.typed("dlock run j -- sh -c 'touch in; read x; echo \"got $x\"'\n") // as ever when it did not wait
	term.until("the command's start", term.exists("in"))
	term.typed(ctrlZ)
	term.await("Stopped", prompt)
	term.typed("fg\n")
	term.await("dlock run j")
	term.typed("on we go\n")
	term.await("got on we go", prompt)
}
