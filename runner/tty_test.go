//go:build linux

package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/proc"
)

// terminal is an interactive shell in a pseudo terminal. In it, the function run is
// a miniature run.
type terminal struct {
	*run
	tty *os.File

	mu     sync.Mutex
	screen strings.Builder
	seen   int // what await has passed
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	r := newRun(t, "")
	term := &terminal{run: r}
	// Not in the environment: the shell must not carry the mark.
	mini := `run() { "$RUN" mini -log "$LOG" -mark ` + r.mark + ` "$@"; }
PS1='pro''mpt> '
`
	rc := filepath.Join(r.workDir, "rc")
	if err := os.WriteFile(rc, []byte(mini), 0o644); err != nil {
		t.Fatal(err)
	}
	program, _ := os.Executable()
	cmd := exec.Command("bash", "--noprofile", "--rcfile", rc, "-i")
	cmd.Env = append(r.Env, "RUN="+program, "LOG="+r.log, "TERM=dumb")
	tty, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	r.Cmd, term.tty = cmd, tty
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		tty.Close()
	})
	go func() {
		buf := make([]byte, 4096)
		for {
			n, err := tty.Read(buf)
			term.mu.Lock()
			term.screen.Write(buf[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	term.await("prompt> ")
	return term
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
		found := false
		defer func() {
			if !found {
				term.t.Logf("screen: %q", term.text())
			}
		}()
		eventually(term.t, word+" on the screen", func() bool {
			at := strings.Index(term.text()[term.seen:], word)
			if at >= 0 {
				term.seen += at + len(word)
				found = true
			}
			return found
		})
	}
}

func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.screen.String()
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestTerminalInput(t *testing.T) {
	term := newTerminal(t)
	term.typed("run sh -c 'read x; echo \"got:$x\"'\n")
	term.await("\n")
	term.has(`sh -c read x; echo "got:$x"`)
	term.typed("hello\n")
	term.await("got:hello", "prompt> ")

	// Neither needs standard input to be the terminal.
	term.typed("run sh -c 'printf \"pass\"\"word: \" >/dev/tty; read x </dev/tty; echo \"got:$x\"' </dev/null\n")
	term.await("password: ")
	term.typed("secret\n")
	term.await("got:secret", "prompt> ")
}

func TestTerminalInterruptArrivesOnceAndEndsALoop(t *testing.T) {
	term := newTerminal(t)
	term.typed("run sh -c 'trap \"echo i\"\"nt\" INT; echo re\"\"ady; sleep 300; sleep 0.2; exit 7'; echo code=$?\n")
	term.await("ready")
	term.has("sleep 300")
	term.typed(ctrlC)
	term.await("int", "code=7", "prompt> ")
	if n := strings.Count(term.text(), "\r\nint") + strings.Count(term.text(), "^Cint"); n != 1 {
		t.Errorf("Ctrl-C arrived %d times: %q", n, term.text())
	}

	term.typed("for i in 1 2 3; do echo ro\"\"und$i; run sleep 301; done; echo co\"\"de=$?\n")
	term.await("round1")
	term.has("sleep 301")
	term.typed(ctrlC)
	term.await("prompt> ")
	if strings.Contains(term.text(), "round2") {
		t.Error("the loop went on after Ctrl-C")
	}
	term.typed("echo st\"\"ate=$?\n")
	term.await("state=130", "prompt> ")
	for _, rec := range term.records() {
		if rec.Result != nil && rec.Result.Signal == unix.SIGINT && rec.Result.DieBy != unix.SIGINT {
			t.Errorf("result %+v, want DieBy SIGINT", rec.Result)
		}
	}
}

func TestTerminalStopAndForeground(t *testing.T) {
	term := newTerminal(t)
	term.typed("run sh -c 'echo re\"\"ady; read x; echo \"got:$x\"'\n")
	term.await("ready")
	term.typed(ctrlZ)
	term.await("Stopped", "prompt> ")
	term.typed("fg\n")
	term.await("\n")
	term.typed("again\n")
	term.await("got:again", "prompt> ")
}

func TestTerminalPipeline(t *testing.T) {
	term := newTerminal(t)
	term.typed("run sh -c 'echo from; cat' </dev/null | sh -c 'read a; read b </dev/tty; echo \"$a-$b\"'\n")
	term.await("\n")
	term.typed("me\n")
	term.await("from-me", "prompt> ")
}

func TestTerminalAfterTheCommandWasKilled(t *testing.T) {
	term := newTerminal(t)
	term.typed("run sleep 300; echo co\"\"de=$?\n")
	term.has("sleep 300")
	_ = unix.Kill(term.left()[0].PID, unix.SIGKILL)
	term.await("code=137", "prompt> ")
	term.typed("echo al\"\"ive\n")
	term.await("alive", "prompt> ")
}

func TestTerminalTermStopsTheCommandAndNobodyElse(t *testing.T) {
	term := newTerminal(t)
	term.typed("run -grace 200ms sh -c '(trap \"\" TERM; sleep 301) & sleep 300' | (cat; echo pa\"\"rtner)\n")
	term.has("sleep 300", "sleep 301")
	_ = unix.Kill(term.miniPID(), unix.SIGTERM)
	term.await("partner", "prompt> ")
	term.gone()
}

// miniPID returns the run that the shell started.
func (term *terminal) miniPID() int {
	term.t.Helper()
	list, _ := proc.List()
	for _, p := range list {
		if carries(p, term.tag) && !carries(p, term.mark) && strings.Contains(proc.Command(p.PID), " mini ") {
			return p.PID
		}
	}
	term.t.Fatal("no run")
	return 0
}

// A shell that runs in the foreground shares its group with the command, and
// nothing but the command may be killed.
func TestTerminalKilledRunLeavesNothing(t *testing.T) {
	for range rounds() {
		term := newTerminal(t)
		term.typed("run sh -c 'env -i sleep 302.1 & setsid sleep 301 & sleep 300 | cat & sleep 300' | (cat; sleep 0.01; echo pa\"\"rtner)\n")
		term.has("sleep 301", "sleep 300", "sleep 300", "cat")
		eventually(t, "the process without a mark", func() bool { return running("sleep 302.1") })
		_ = unix.Kill(term.miniPID(), unix.SIGKILL)
		term.gone()
		eventually(t, "its end", func() bool { return !running("sleep 302.1") })
		term.await("partner", "prompt> ")
	}
}

func TestTerminalStoppedRunIsDeadAtItsDeadline(t *testing.T) {
	term := newTerminal(t)
	term.typed("run -kill-in 2s -renew 100ms sh -c 'sleep 300 | cat & sleep 300'; echo co\"\"de=$?\n")
	term.has(treeParts...)
	term.typed(ctrlZ)
	term.await("Stopped", "prompt> ")
	term.gone()
	term.typed("fg\n")
	term.await("prompt> ")
	term.run.await("the deadline", func(rec record) bool { return rec.Result != nil && rec.Result.Cause == Deadline })
}

func TestTerminalHangUp(t *testing.T) {
	term := newTerminal(t)
	term.typed("run sh -c 'sleep 300 | cat & sleep 300'\n")
	term.has(treeParts...)
	_ = term.Process.Kill() // the kernel hangs up when the session's leader ends
	term.gone()
}
