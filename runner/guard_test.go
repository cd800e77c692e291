//go:build linux

package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/proc"
)

// guardOf returns the guard of the run with this pid, if it has one.
func guardOf(pid int) (proc.Process, bool) {
	list, _ := proc.List()
	for _, p := range list {
		if p.PPID == pid && !p.Zombie && isGuard(p) {
			return p, true
		}
	}
	return proc.Process{}, false
}

func (r *run) awaitGuard(not int) proc.Process {
	r.t.Helper()
	var guard proc.Process
	eventually(r.t, "a guard", func() bool {
		var ok bool
		guard, ok = guardOf(r.Process.Pid)
		return ok && guard.PID != not
	})
	return guard
}

func TestKilledGuardIsReplaced(t *testing.T) {
	for range max(rounds()/5, 2) {
		r := newRun(t, "", "sh", "-c", "setsid sleep 301 & "+tree)
		r.begin()
		r.has(append([]string{"sleep 301"}, treeParts...)...)
		first := r.awaitGuard(0)
		_ = unix.Kill(first.PID, unix.SIGKILL)
		r.awaitGuard(first.PID)
		_ = r.Process.Kill()
		(&tally{t: t}).check(r, time.Now())
	}
}

func TestReplacedGuardKnowsTheDeadline(t *testing.T) {
	r := newRun(t, "-kill-in 2s -renew 100ms", "sh", "-c", tree)
	r.begin()
	r.has(treeParts...)
	first := r.awaitGuard(0)
	_ = unix.Kill(first.PID, unix.SIGKILL)
	r.awaitGuard(first.PID)
	_ = r.Process.Signal(unix.SIGSTOP)
	r.gone()
	_ = r.Process.Signal(unix.SIGCONT)
	r.finish()
}

// Both are killed, the guard last: it has the time it needs, or the kernel has
// killed the command itself.
func TestRunAndThenGuardKilled(t *testing.T) {
	for range rounds() {
		r := newRun(t, "", "sleep", "300")
		r.begin()
		r.has("sleep 300")
		guard := r.awaitGuard(0)
		_ = r.Process.Kill()
		_ = unix.Kill(guard.PID, unix.SIGKILL)
		r.gone()
	}
}

func TestStoppedGuardDoesNotHoldARunUp(t *testing.T) {
	r := newRun(t, "-kill-in 1s -renew 100us", "sh", "-c", tree)
	r.begin()
	r.has(treeParts...)
	guard := r.awaitGuard(0)
	_ = unix.Kill(guard.PID, unix.SIGSTOP)
	next := r.awaitGuard(guard.PID) // once its pipe is full
	_ = r.Process.Kill()
	(&tally{t: t}).check(r, time.Now())
	if next.PID == guard.PID {
		t.Error("the stopped guard was not replaced")
	}
}

func TestGuardIgnoresSignalsAndHasNothingOfOurs(t *testing.T) {
	r := newRun(t, "", "sleep", "300")
	extra := extraFile(t)
	r.ExtraFiles = []*os.File{extra, extra, extra}
	r.begin()
	guard := r.awaitGuard(0)
	ignored := func() bool {
		status, _ := os.ReadFile(procDir(guard.PID) + "/status")
		return strings.Contains(string(status), "SigIgn:\tf") // most of them
	}
	eventually(t, "the guard to ignore signals", ignored)
	_ = unix.Kill(guard.PID, unix.SIGTERM)
	_ = unix.Kill(guard.PID, unix.SIGHUP)
	// It may have a file of /proc open for a moment.
	eventually(t, "the guard to have nothing of ours", func() bool { return guardHasOnly(guard.PID, r.keep) })
	if env, _ := os.ReadFile(procDir(guard.PID) + "/environ"); string(env) != guardEnv[0]+"\x00" {
		t.Errorf("the guard has another environment than its own: %q", env)
	}
	if sid, _ := unix.Getsid(guard.PID); sid != guard.PID {
		t.Errorf("the guard is in session %d", sid)
	}
	_ = r.Process.Signal(unix.SIGTERM)
	r.finish()
	eventually(t, "the guard's end", func() bool { return !unchanged(guard) })
}

// guardHasOnly tells whether a guard has nothing open but its pipe and the file to keep.
func guardHasOnly(pid int, keep string) bool {
	files := descriptors(pid)
	for fd, target := range files {
		switch {
		case fd <= "2" && target == "/dev/null":
		case fd == "3" && strings.HasPrefix(target, "pipe:"):
		case fd == "4" && target == keep:
		case strings.HasPrefix(target, "anon_inode:"), strings.HasPrefix(target, "/sys/"): // the Go runtime's own
		default:
			return false
		}
	}
	return len(files) >= 5
}

// descriptors returns what a process has open.
func descriptors(pid int) map[string]string {
	files := map[string]string{}
	entries, _ := os.ReadDir(procDir(pid) + "/fd")
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join(procDir(pid), "fd", e.Name())); err == nil {
			files[e.Name()] = target
		}
	}
	return files
}

func extraFile(t *testing.T) *os.File {
	f, err := os.CreateTemp(t.TempDir(), "extra")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestCommandGetsOurParentsDescriptorsOnly(t *testing.T) {
	r := newRun(t, "-kill-in 1m", "sleep", "300")
	extra := extraFile(t)
	r.ExtraFiles = []*os.File{nil, nil, extra} // as 5
	pid := r.begin()
	r.has("sleep 300")
	files := descriptors(pid)
	if files["5"] != extra.Name() {
		t.Errorf("5 is %q, want %s", files["5"], extra.Name())
	}
	// Whatever else is there, this test's own process had it open for its children.
	for fd, target := range files {
		if fd > "2" && fd != "5" && descriptors(os.Getpid())[fd] != target {
			t.Errorf("the command has %s as %s", target, fd)
		}
	}
	_ = r.Process.Signal(unix.SIGTERM)
	r.finish()
}

func TestAProcessWithTheGuardsNameIsNoGuard(t *testing.T) {
	path, _ := exec.LookPath("sleep")
	r := newRun(t, "-stop-after 1ms -grace 1ms", "bash", "-c", "exec -a dlock-guard "+path+" 300")
	r.begin()
	if got := r.finish(); got.Signal != unix.SIGTERM && got.Signal != unix.SIGKILL {
		t.Errorf("result %+v", got)
	}
}
