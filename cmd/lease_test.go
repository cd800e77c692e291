//go:build linux

package cmd

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
)

// patience bounds waits for what must happen; it decides nothing when all is well.
const patience = 30 * time.Second

// tree is a command that is more than one process, and ignores SIGTERM.
const tree = `trap '' TERM; touch started; sleep 300 | cat & sleep 300; sleep 300`

// leased is a dlock run under the scripted lock service.
type leased struct {
	*exec.Cmd
	dir  string
	mark string // in the environment of the command's processes
}

func startLeased(t *testing.T, args ...string) *leased {
	t.Helper()
	l := &leased{dir: t.TempDir()}
	l.mark = "LEASE_TEST=" + l.dir
	l.Cmd = exec.Command(os.Args[0], append([]string{"-b", "scripted://" + l.dir, "run"}, args...)...)
	stderr, err := os.Create(filepath.Join(l.dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	l.Dir, l.Stderr = l.dir, stderr
	l.Env = append(os.Environ(), "DLOCK_TEST_MAIN=1", "GORACE=atexit_sleep_ms=0", l.mark)
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Process.Signal(syscall.SIGCONT)
		_ = l.Process.Kill()
		_ = l.Wait()
	})
	return l
}

func (l *leased) await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("timed out: %s; stderr:\n%s", what, l.said())
		}
	}
}

// said is what dlock and its command wrote to stderr so far.
func (l *leased) said() string {
	text, _ := os.ReadFile(filepath.Join(l.dir, "stderr"))
	return string(text)
}

func (l *leased) exists(name string) bool {
	_, err := os.Stat(filepath.Join(l.dir, name))
	return err == nil
}

func (l *leased) write(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// alive counts the command's processes: those with the mark that are not dlock.
func (l *leased) alive() (n int) {
	list, _ := proc.List()
	for _, p := range list {
		if p.Zombie || p.PID == l.Process.Pid {
			continue
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		if strings.Contains(string(env), l.mark+"\x00") {
			n++
		}
	}
	return n
}

// deadline is the end of the last lease that was granted.
func (l *leased) deadline(t *testing.T) boottime.Instant {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, "deadline"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := time.ParseDuration(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return boottime.Instant(d)
}

// mustDieInTime waits for the end of the command's processes and compares it with the
// deadline. It looks at the clock after it has seen them dead: late is late.
func (l *leased) mustDieInTime(t *testing.T) {
	t.Helper()
	var seen boottime.Instant
	l.await(t, "the command's death", func() bool {
		dead := l.alive() == 0
		seen = boottime.Now()
		return dead
	})
	if over := seen.Sub(l.deadline(t)); over > 0 {
		t.Errorf("the command was seen dead %v after the deadline", over)
	}
}

func (l *leased) code(t *testing.T) int {
	t.Helper()
	err := l.Wait()
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return l.ProcessState.ExitCode()
}

func repetitions() int {
	if os.Getenv("DLOCK_FULL") != "" {
		return 100
	}
	return 5
}

func TestStoppedDlockDoesNotKeepItsCommandAlive(t *testing.T) {
	for range repetitions() {
		l := startLeased(t, "--ttl", "2s", "j", "--", "sh", "-c", tree)
		l.await(t, "the command's start", func() bool { return l.exists("started") })
		if err := l.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		l.mustDieInTime(t)
		if err := l.Process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if code := l.code(t); code != exitLost {
			t.Errorf("exit code %d, want %d; stderr:\n%s", code, exitLost, l.said())
		}
	}
}

func TestHungServiceStopsTheCommandInTime(t *testing.T) {
	l := startLeased(t, "--ttl", "2s", "--grace", "0.2", "j", "--", "sh", "-c", tree)
	l.await(t, "the command's start", func() bool { return l.exists("started") })
	first := l.deadline(t)
	l.await(t, "a renewal", func() bool { return l.deadline(t) > first })
	l.write(t, "hang")
	l.mustDieInTime(t)
	if code := l.code(t); code != exitLost {
		t.Errorf("exit code %d, want %d", code, exitLost)
	}
	if said := l.said(); strings.Count(said, "\n") > 2 || !strings.Contains(said, "dlock: error: j: lost: the lease could not be renewed in time") {
		t.Errorf("stderr:\n%s", said)
	}
}

func TestLossIsActedUponAtOnce(t *testing.T) {
	l := startLeased(t, "--ttl", "3s", "j", "--", "sh", "-c", `trap 'exit 0' TERM; touch started; while :; do sleep 0.05; done`)
	l.await(t, "the command's start", func() bool { return l.exists("started") })
	l.write(t, "lost")
	l.mustDieInTime(t)
	if code := l.code(t); code != exitLost {
		t.Errorf("exit code %d, want %d although the command ended with 0", code, exitLost)
	}
	if said := l.said(); !strings.Contains(said, "dlock: error: j: lost: no longer held; the command is being stopped") {
		t.Errorf("stderr:\n%s", said)
	}
}

func TestOnLostWarnLetsTheCommandEnd(t *testing.T) {
	l := startLeased(t, "--ttl", "1s", "--on-lost", "warn", "j", "--", "sh", "-c", "touch started; until [ -e go ]; do sleep 0.05; done; touch ended")
	l.await(t, "the command's start", func() bool { return l.exists("started") })
	l.write(t, "lost")
	l.await(t, "the message", func() bool { return strings.Contains(l.said(), "goes on without the lock") })
	l.write(t, "go")
	if code := l.code(t); code != exitLost || !l.exists("ended") {
		t.Errorf("exit code %d, ended %v; want %d and the command's own end", code, l.exists("ended"), exitLost)
	}
}

func TestRenewalsGoOnDuringTheGracePeriod(t *testing.T) {
	l := startLeased(t, "--ttl", "1s", "--grace", "1m", "j", "--", "sh", "-c", "trap 'touch asked' TERM; touch started; until [ -e go ]; do sleep 0.05; done; exit 7")
	l.await(t, "the command's start", func() bool { return l.exists("started") })
	if err := l.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	l.await(t, "the forwarded signal", func() bool { return l.exists("asked") })
	asked := l.deadline(t)
	l.await(t, "renewals after it", func() bool { return l.deadline(t).Sub(asked) > 1500*time.Millisecond })
	l.write(t, "go")
	if code := l.code(t); code != 7 || !l.exists("released") {
		t.Errorf("exit code %d, released %v; want 7 and a release", code, l.exists("released"))
	}
}

func TestReleaseThatHangsIsBounded(t *testing.T) {
	l := startLeased(t, "--ttl", "2s", "j", "--", "sh", "-c", "touch started; until [ -e hang ]; do sleep 0.01; done; exit 7")
	l.await(t, "the command's start", func() bool { return l.exists("started") })
	l.write(t, "hang")
	if code := l.code(t); code != 7 {
		t.Errorf("exit code %d, want the command's 7", code)
	}
	if said := l.said(); !strings.Contains(said, "dlock: warning: j: not released, ends by itself in ") {
		t.Errorf("stderr:\n%s", said)
	}
}

func TestSecondSignalEndsAHungRelease(t *testing.T) {
	l := startLeased(t, "--ttl", "1h", "j", "--", "sh", "-c", "touch started; until [ -e hang ]; do sleep 0.01; done; exit 7")
	l.await(t, "the command's start", func() bool { return l.exists("started") })
	l.write(t, "hang")
	l.await(t, "the command's end", func() bool { return l.alive() == 0 })
	stop := make(chan struct{})
	defer close(stop)
	go func() { // the first ones may still go to the runner
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_ = l.Process.Signal(syscall.SIGTERM)
			}
		}
	}()
	if code := l.code(t); code != 7 {
		t.Errorf("exit code %d, want the command's 7; stderr:\n%s", code, l.said())
	}
}

// TestEchoOfASignalEndsNoRelease: timeout(1) signals dlock, and then dlock's group.
func TestEchoOfASignalEndsNoRelease(t *testing.T) {
	l := startLeased(t, "--ttl", "1h", "j", "--", "sh", "-c", "touch started; until [ -e echo ]; do sleep 0.01; done; exit 7")
	l.await(t, "the command's start", func() bool { return l.exists("started") })
	l.write(t, "echo")
	if code := l.code(t); code != 7 || !l.exists("released") {
		t.Errorf("exit code %d, want the command's 7; stderr:\n%s", code, l.said())
	}
}
