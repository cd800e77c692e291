//go:build linux

package runner

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/proc"
)

func pidOf(t *testing.T) string { return strconv.Itoa(os.Getpid()) }

func lookPath(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func countLines(t *testing.T, path, line string) (n int) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(data)) {
		if strings.TrimSpace(l) == line {
			n++
		}
	}
	return n
}

// counter prints each signal that it gets, and ends after SIGUSR2.
const counter = `for s in HUP INT QUIT TERM USR1 ALRM WINCH CONT; do trap "echo $s" $s; done
trap "echo USR2; exit 9" USR2
echo ready
while :; do sleep 0.05; done`

func TestSignalsAreForwardedOnce(t *testing.T) {
	r := newRun(t, "", "sh", "-c", counter)
	path := r.output()
	r.begin()
	r.says(path, "ready")
	for _, sig := range []unix.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGALRM, unix.SIGWINCH, unix.SIGCONT, unix.SIGTERM} {
		_ = r.Process.Signal(sig)
		r.says(path, strings.TrimPrefix(unix.SignalName(sig), "SIG")+"\n")
	}
	_ = r.Process.Signal(unix.SIGUSR2)
	if got := r.finish(); got.Code != 9 || got.Cause != Ended {
		t.Errorf("result %+v, want 9", got)
	}
	for _, name := range []string{"HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "WINCH", "CONT"} {
		if n := countLines(t, path, name); n != 1 {
			t.Errorf("%s came %d times", name, n)
		}
	}
}

func TestCommandMayIgnoreSIGINT(t *testing.T) {
	r := newRun(t, "-grace 1ms", "sh", "-c", `trap "echo INT" INT; echo ready; while [ ! -e `+t.TempDir()+`/never ]; do sleep 0.05; done`)
	path := r.output()
	r.begin()
	r.says(path, "ready")
	for range 3 {
		_ = r.Process.Signal(unix.SIGINT)
	}
	r.says(path, "INT")
	if _, alive := guardOf(r.Process.Pid); !alive || len(r.left()) == 0 {
		t.Error("SIGINT stopped a command that does not want to")
	}
	_ = r.Process.Signal(unix.SIGTERM)
	r.finish()
}

func TestIgnoredSIGHUPStaysIgnored(t *testing.T) {
	r := newRun(t, "", "sh", "-c", "echo ready; exec sleep 300")
	r.Args = append([]string{"nohup", r.Path}, r.Args[1:]...)
	r.Path = lookPath(t, "nohup")
	path := r.output()
	pid := r.begin()
	r.says(path, "ready")
	_ = r.Process.Signal(unix.SIGHUP)
	_ = unix.Kill(-pid, unix.SIGHUP)
	_ = r.Process.Signal(unix.SIGUSR1) // ends the command; SIGHUP came before it
	if got := r.finish(); got.Signal != unix.SIGUSR1 {
		t.Errorf("result %+v, want the end by SIGUSR1", got)
	}
}

func TestExitCodes(t *testing.T) {
	codes := []int{0, 1, 2, 7, 75, 76, 124, 126, 127, 128, 200, 254, 255}
	if rounds() > 10 {
		codes = codes[:0]
		for code := range 256 {
			codes = append(codes, code)
		}
	}
	for _, code := range codes {
		r := newRun(t, "", "sh", "-c", fmt.Sprintf("exit %d", code))
		r.launch()
		if got := r.finish(); got.Code != code || got.Signal != 0 || got.Cause != Ended {
			t.Errorf("exit %d: result %+v", code, got)
		}
		if got := r.ProcessState.ExitCode(); got != code {
			t.Errorf("exit %d: the run exits with %d", code, got)
		}
	}
}

func TestEndBySignal(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGKILL, unix.SIGSEGV, unix.SIGINT, unix.SIGQUIT, unix.SIGHUP} {
		r := newRun(t, "", "sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$", sig))
		r.launch()
		if got := r.finish(); got.Signal != sig || got.Code != 128+int(sig) || got.DieBy != 0 {
			t.Errorf("%v: result %+v", sig, got)
		}
	}
}

// Orphans become ours; none stays a zombie.
func TestOrphansAreReaped(t *testing.T) {
	r := newRun(t, "", "sh", "-c", "for i in 1 2 3 4 5; do (setsid sleep 0.1 &) ; done; echo ready; sleep 300")
	path := r.output()
	r.begin()
	r.says(path, "ready")
	r.has("sleep 300")
	eventually(t, "two children, the guard and the command", func() bool {
		list, _ := proc.List()
		n := 0
		for _, p := range list {
			if p.PPID == r.Process.Pid {
				n++
			}
		}
		return n == 2
	})
	_ = r.Process.Signal(unix.SIGTERM)
	r.finish()
}

func TestAsPID1(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Log("only root can make a PID namespace")
		return
	}
	r := newRun(t, "", "sh", "-c", "(setsid sleep 0.1 &); echo $PPID; while grep -qs '^State:.Z' /proc/[0-9]*/status || pgrep -x sleep; do :; done; exit 6")
	r.Args = append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", r.Path}, r.Args[1:]...)
	r.Path = lookPath(t, "unshare")
	r.launch()
	if got := r.finish(); got.Code != 6 {
		t.Errorf("result %+v, want 6", got)
	}
	if !strings.HasPrefix(r.stdout.String(), "1\n") {
		t.Errorf("the run's pid is %q, want 1", r.stdout)
	}
}
