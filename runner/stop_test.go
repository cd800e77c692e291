//go:build linux

package runner

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const deaf = `trap "" TERM; echo ready; while :; do sleep 1; done`

func TestStopKillsWhatIgnoresSIGTERM(t *testing.T) {
	hidden := unique("sleep 302")
	r := newRun(t, "-stop-after 300ms -grace 200ms", "sh", "-c", `trap "" TERM; env -i setsid `+hidden+` & sleep 301 & sleep 300`)
	r.begin()
	got := r.finish()
	if got.Cause != Stopped || got.Signal != unix.SIGKILL || got.Code != 137 {
		t.Errorf("result %+v, want Stopped by SIGKILL", got)
	}
	if left := r.left(); len(left) > 0 || running(hidden) {
		t.Errorf("left: %v, %s: %v", names(left), hidden, running(hidden))
	}
}

func TestStopLeavesTheGracePeriod(t *testing.T) {
	r := newRun(t, "-stop-after 300ms", "sh", "-c", `trap 'sleep 0.3; exit 3' TERM; while :; do sleep 0.1; done`)
	r.begin()
	if got := r.finish(); got.Cause != Stopped || got.Code != 3 {
		t.Errorf("result %+v, want Stopped and 3", got)
	}
}

func TestStopInThePastKillsAtOnce(t *testing.T) {
	r := newRun(t, "-stop-after 300ms -stop-kill -1s", "sh", "-c", `trap 'exit 3' TERM; while :; do sleep 0.1; done`)
	r.begin()
	if got := r.finish(); got.Cause != Stopped || got.Signal != unix.SIGKILL {
		t.Errorf("result %+v, want Stopped by SIGKILL", got)
	}
}

func TestStopTermReachesEachProcessOnce(t *testing.T) {
	self := "/proc/" + pidOf(t) + "/exe"
	inner := `trap 'echo inner' TERM; echo ready; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.1; done`
	r := newRun(t, "", self, "mini", "-mark", "inner", "--", "sh", "-c", inner)
	path := r.output()
	r.begin()
	r.says(path, "ready")
	_ = r.Process.Signal(unix.SIGTERM)
	if got := r.finish(); got.Code != 0 {
		t.Errorf("result %+v", got)
	}
	if n := countLines(t, path, "inner"); n != 1 {
		t.Errorf("SIGTERM came %d times", n)
	}
}

func TestTermThenGraceThenKill(t *testing.T) {
	r := newRun(t, "-grace 200ms", "sh", "-c", deaf)
	path := r.output()
	r.begin()
	r.says(path, "ready")
	_ = r.Process.Signal(unix.SIGTERM)
	event := r.awaitEvent(Stopping)
	if event.Event.Signal != unix.SIGTERM || event.Event.Grace != 200*time.Millisecond {
		t.Errorf("event %+v", event.Event)
	}
	got := r.finish()
	if got.Cause != Ended || got.Signal != unix.SIGKILL {
		t.Errorf("result %+v, want Ended by SIGKILL", got)
	}
}

func TestSecondSignalKillsAtOnce(t *testing.T) {
	for _, second := range []unix.Signal{unix.SIGTERM, unix.SIGINT} {
		r := newRun(t, "-grace 1h", "sh", "-c", deaf)
		path := r.output()
		r.begin()
		r.says(path, "ready")
		_ = r.Process.Signal(unix.SIGTERM)
		r.awaitEvent(Stopping)
		_ = r.Process.Signal(second)
		if got := r.finish(); got.Cause != Ended || got.Signal != unix.SIGKILL {
			t.Errorf("result %+v, want Ended by SIGKILL", got)
		}
	}
}

func TestMaxRun(t *testing.T) {
	r := newRun(t, "-max-run 300ms -grace 200ms", "sh", "-c", deaf)
	r.begin()
	if got := r.finish(); got.Cause != MaxRun || got.Signal != unix.SIGKILL {
		t.Errorf("result %+v, want MaxRun by SIGKILL", got)
	}
}

func TestMaxRunCoversSurvivors(t *testing.T) {
	r := newRun(t, "-max-run 500ms", "sh", "-c", "sleep 300 & exit 4")
	r.begin()
	if got := r.finish(); got.Cause != MaxRun || got.Code != 4 {
		t.Errorf("result %+v, want MaxRun and 4", got)
	}
	if left := r.left(); len(left) > 0 {
		t.Errorf("left: %v", names(left))
	}
}

func TestDeadlineKills(t *testing.T) {
	hidden := unique("sleep 302")
	r := newRun(t, "-kill-in 500ms", "sh", "-c", "env -i setsid "+hidden+" & "+tree)
	r.begin()
	if got := r.finish(); got.Cause != Deadline || got.Signal != unix.SIGKILL {
		t.Errorf("result %+v, want Deadline by SIGKILL", got)
	}
	if left := r.left(); len(left) > 0 || running(hidden) {
		t.Errorf("left: %v, %s: %v", names(left), hidden, running(hidden))
	}
}

func TestRenewedDeadlineDoesNotKill(t *testing.T) {
	r := newRun(t, "-kill-in 30s -renew 50ms", "sh", "-c", "sleep 1; exit 5")
	r.begin()
	if got := r.finish(); got.Cause != Ended || got.Code != 5 {
		t.Errorf("result %+v, want Ended and 5", got)
	}
}

// A process that a stop cannot reach is left, and named, at the end of the deadline.
func TestWhatCannotBeKilledIsLeft(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Log("only root can make a process that this test's run may not kill")
		return
	}
	program := readableProgram(t)
	hidden := unique("sleep 303")
	r := newRun(t, "-stop-after 500ms -stop-kill -1s -stop-end 800ms", "sh", "-c", hidden)
	// The run loses its right to kill: it is root's, its capabilities are not.
	r.Args = append([]string{"setpriv", "--inh-caps=-kill,-setuid", "--bounding-set=-kill", program}, r.Args[1:]...)
	r.Path = lookPath(t, "setpriv")
	r.Args = append(r.Args[:len(r.Args)-3], "setpriv", "--reuid=65534", "--clear-groups", "sh", "-c", hidden+"; true")
	r.begin()
	got := r.finish()
	if got.Cause != Stopped || len(got.Left) == 0 {
		t.Errorf("result %+v, want processes left", got)
	}
	r.awaitEvent(NotPermitted)
	r.awaitEvent(Remaining)
}
