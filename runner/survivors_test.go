//go:build linux

package runner

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSurvivorsAreWaitedFor(t *testing.T) {
	r := newRun(t, "", "sh", "-c", "sleep 300 & exit 3")
	r.begin()
	event := r.awaitEvent(WaitingSurvivors)
	if p := event.Event.Processes; len(p) != 1 || p[0].Command != "sleep 300" {
		t.Errorf("survivors %v", p)
	}
	if r.lockable() {
		t.Error("the lock does not cover survivors")
	}
	_ = unix.Kill(event.Event.Processes[0].PID, unix.SIGKILL)
	if got := r.finish(); got.Code != 3 || got.Cause != Ended {
		t.Errorf("result %+v, want 3", got)
	}
}

// A survivor whose parent left the group is no child of ours and none of our orphans.
func TestSurvivorOfAnotherParentIsWaitedFor(t *testing.T) {
	script := `import os, time
if os.fork() == 0:
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", "300"])
    os.setsid()
    os.wait()
    time.sleep(301)
os._exit(0)`
	python := lookPath(t, "python3")
	r := newRun(t, "", python, "-c", script)
	r.begin()
	p := r.awaitEvent(WaitingSurvivors).Event.Processes
	if len(p) != 1 || p[0].Command != "sleep 300" {
		t.Errorf("survivors %v", p)
	}
	_ = unix.Kill(p[0].PID, unix.SIGKILL)
	r.finish()
}

func TestSurvivorsAreKilled(t *testing.T) {
	r := newRun(t, "-survivors kill -grace 200ms", "sh", "-c", `(trap "" TERM; exec sleep 300) & setsid sleep 301 & sleep 0.3; exit 3`)
	r.begin()
	got := r.finish()
	if got.Code != 3 || got.Cause != Ended {
		t.Errorf("result %+v, want 3", got)
	}
	r.awaitEvent(KillingSurvivors)
	if left := r.left(); len(left) != 1 || names(left)[0].Command != "sleep 301" {
		t.Errorf("left: %v, want the daemon alone", names(left))
	}
}

func TestSurvivorsAreIgnored(t *testing.T) {
	r := newRun(t, "-survivors ignore", "sh", "-c", "sleep 300 & exit 3")
	r.begin()
	if got := r.finish(); got.Code != 3 {
		t.Errorf("result %+v, want 3", got)
	}
	r.has("sleep 300")
	eventually(t, "the lock", r.lockable)
	r.has("sleep 300")
}

func TestDaemonIsLeftAloneAtANormalEnd(t *testing.T) {
	r := newRun(t, "", "sh", "-c", "setsid sleep 301 & sleep 0.3; exit 3")
	r.begin()
	if got := r.finish(); got.Code != 3 {
		t.Errorf("result %+v, want 3", got)
	}
	eventually(t, "the lock", r.lockable)
	r.has("sleep 301")
}

func TestDaemonIsKilledAtAStop(t *testing.T) {
	r := newRun(t, "-stop-after 500ms -grace 200ms", "sh", "-c", `setsid sh -c 'trap "" TERM; sleep 302; sleep 303' & sleep 300`)
	r.begin()
	if got := r.finish(); got.Cause != Stopped {
		t.Errorf("result %+v, want Stopped", got)
	}
	if left := r.left(); len(left) > 0 {
		t.Errorf("left: %v", names(left))
	}
}

func TestTermReachesSurvivors(t *testing.T) {
	r := newRun(t, "", "sh", "-c", "sleep 300 & exit 3")
	r.begin()
	r.awaitEvent(WaitingSurvivors)
	_ = r.Process.Signal(unix.SIGTERM)
	if got := r.finish(); got.Code != 3 || got.Cause != Ended {
		t.Errorf("result %+v, want 3", got)
	}
}

// What was started before `exec dlock` in a script is none of the command's.
func TestStrangeChildrenAreLeftAlone(t *testing.T) {
	r := newRun(t, "-stop-after 5s", "sh", "-c", "sleep 300")
	r.Args = append([]string{"sh", "-c", `sleep 304 & exec "$@"`, "sh", r.Path}, r.Args[1:]...)
	r.Path = lookPath(t, "sh")
	r.begin()
	r.has("sleep 300")
	if got := r.finish(); got.Cause != Stopped {
		t.Errorf("result %+v, want Stopped", got)
	}
	var strangers int
	for _, p := range names(r.living()) {
		if p.Command == "sleep 304" {
			strangers++
		}
	}
	if strangers != 1 {
		t.Errorf("the stranger was killed; alive: %v", names(r.living()))
	}
}

// A nested run may work under our lock, wherever it went.
func TestNestedRunThatLeftTheGroupIsWaitedFor(t *testing.T) {
	r := newRun(t, "", "sh", "-c", `setsid "$RUN" mini -mark nested sleep 300 & sleep 0.3; exit 3`)
	self, _ := os.Executable()
	r.Env = append(r.Env, "RUN="+self)
	r.begin()
	r.awaitEvent(WaitingSurvivors)
	if r.lockable() {
		t.Error("the lock does not cover the nested run")
	}
	_ = r.Process.Signal(unix.SIGTERM)
	if got := r.finish(); got.Code != 3 {
		t.Errorf("result %+v, want 3", got)
	}
	r.gone()
}

// Once the command has ended, there is nobody to decide what an interrupt means.
func TestInterruptEndsTheWaitForSurvivors(t *testing.T) {
	r := newRun(t, "", "sh", "-c", "sleep 300 & exit 3")
	r.begin()
	r.awaitEvent(WaitingSurvivors)
	_ = r.Process.Signal(unix.SIGINT)
	if got := r.finish(); got.Code != 3 || got.Cause != Ended {
		t.Errorf("result %+v, want 3", got)
	}
	r.gone()
}

// In a process namespace whose /proc shows another one, numbers mean nothing: the
// group is waited for, and killed, as a whole.
func TestForeignProc(t *testing.T) {
	unshare := lookPath(t, "unshare")
	for what, c := range map[string]struct {
		flags, script string
		code          int
	}{
		"max-run":   {"-max-run 300ms -grace 100ms", "trap '' TERM; sleep 300", 137},
		"survivors": {"", "sleep 0.5 & exit 3", 3},
	} {
		t.Run(what, func(t *testing.T) {
			r := newRun(t, c.flags, "sh", "-c", c.script)
			r.Args = append([]string{"unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", r.Path}, r.Args[1:]...)
			r.Path = unshare
			r.launch()
			if got := r.finish(); got.Code != c.code {
				t.Errorf("result %+v, want %d", got, c.code)
			}
		})
	}
}
