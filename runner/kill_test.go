//go:build linux

package runner

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const tree = "sleep 300 | cat & sleep 300"

var treeParts = []string{"sleep 300", "sleep 300", "cat"}

// rounds is how often the tests kill.
func rounds() int {
	if os.Getenv("DLOCK_FULL") == "1" {
		return 100
	}
	return 10
}

// tally counts kills and how long it took until nothing was left.
type tally struct {
	t                *testing.T
	obtainable, done int
	took             []time.Duration
}

// check waits for the lock after a kill: whoever gets it must find nothing alive.
func (c *tally) check(r *run, killed time.Time) {
	c.t.Helper()
	eventually(c.t, "the lock", r.lockable)
	if alive := r.left(); len(alive) > 0 {
		c.obtainable++
		c.t.Errorf("the lock was obtainable while these were alive: %v", names(alive))
	}
	r.gone()
	c.took = append(c.took, time.Since(killed))
	c.done++
}

func (c *tally) report() {
	slices.Sort(c.took)
	n := len(c.took)
	c.t.Logf("%d kills, obtainable %d; gone after p50 %v, max %v", c.done, c.obtainable, c.took[n/2], c.took[n-1])
}

// asNobody makes a run unprivileged.
func asNobody(r *run, program string) {
	r.Path = program
	r.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	for dir := r.workDir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755)
	}
}

// readableProgram copies this binary to where everybody can execute it.
func readableProgram(t *testing.T) string {
	self, _ := os.Executable()
	in, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	dir, err := os.MkdirTemp("", "runner")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	_ = os.Chmod(dir, 0o755)
	path := filepath.Join(dir, "runner.test")
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// eachUser runs a test as we are and, if we are root, as nobody.
func eachUser(t *testing.T, test func(t *testing.T, prepare func(*run))) {
	t.Run("self", func(t *testing.T) { test(t, func(*run) {}) })
	if os.Geteuid() == 0 {
		t.Run("nobody", func(t *testing.T) {
			program := readableProgram(t)
			test(t, func(r *run) { asNobody(r, program) })
		})
	}
}

func TestKilledRunLeavesNothing(t *testing.T) {
	eachUser(t, func(t *testing.T, prepare func(*run)) {
		c := &tally{t: t}
		for range rounds() {
			r := newRun(t, "", "sh", "-c", tree)
			prepare(r)
			r.begin()
			r.has(treeParts...)
			_ = r.Process.Kill()
			c.check(r, time.Now())
		}
		c.report()
	})
}

func TestRunKilledWhileStarting(t *testing.T) {
	eachUser(t, func(t *testing.T, prepare func(*run)) {
		c := &tally{t: t}
		for range rounds() {
			r := newRun(t, "", "sh", "-c", tree)
			prepare(r)
			r.launch()
			r.await("the start", func(rec record) bool { return rec.Start })
			time.Sleep(rand.N(25 * time.Millisecond))
			_ = r.Process.Kill()
			c.check(r, time.Now())
		}
		c.report()
	})
}

func TestKilledRunLeavesNoDaemon(t *testing.T) {
	commands := map[string]string{
		"setsid":       "setsid sleep 301 & sleep 300",
		"double fork":  "(setsid sh -c 'sleep 301 & exit' &) ; sleep 300",
		"nested shell": "setsid sh -c 'setsid sleep 301; true' & sleep 300",
	}
	for name, line := range commands {
		t.Run(name, func(t *testing.T) {
			c := &tally{t: t}
			for range rounds() {
				r := newRun(t, "", "sh", "-c", line)
				r.begin()
				r.has("sleep 301", "sleep 300")
				_ = r.Process.Kill()
				c.check(r, time.Now())
			}
			c.report()
		})
	}
}

func TestKilledRunLeavesNothingOfANestedRun(t *testing.T) {
	self, _ := os.Executable()
	for range rounds() {
		r := newRun(t, "", self, "mini", "-mark", "inner", "--", "sh", "-c", "setsid sleep 301 & sleep 300")
		r.begin()
		r.has("sleep 301", "sleep 300")
		_ = r.Process.Kill()
		(&tally{t: t}).check(r, time.Now())
	}
}

func TestStoppedRunIsDeadAtItsDeadline(t *testing.T) {
	eachUser(t, func(t *testing.T, prepare func(*run)) {
		for range rounds() {
			hidden := unique("sleep 301")
			r := newRun(t, "-kill-in 1s -renew 100ms", "sh", "-c", "env -i setsid "+hidden+" & "+tree)
			prepare(r)
			r.begin()
			r.has(treeParts...)
			eventually(t, hidden, func() bool { return running(hidden) })
			_ = r.Process.Signal(unix.SIGSTOP)
			r.gone()
			eventually(t, "the end of "+hidden, func() bool { return !running(hidden) })
			if r.lockable() {
				t.Error("a stopped run lost its lock")
			}
			_ = r.Process.Signal(unix.SIGCONT)
			if got := r.finish(); got.Cause != Deadline || got.Code != 137 {
				t.Errorf("result %+v, want Deadline and 137", got)
			}
		}
	})
}

func TestStoppedRunWithoutDeadlineGoesOn(t *testing.T) {
	r := newRun(t, "", "sh", "-c", "sleep 2; echo done")
	path := r.output()
	r.begin()
	_ = r.Process.Signal(unix.SIGSTOP)
	r.says(path, "done")
	_ = r.Process.Signal(unix.SIGCONT)
	if got := r.finish(); got.Cause != Ended || got.Code != 0 {
		t.Errorf("result %+v, want a plain end", got)
	}
}
