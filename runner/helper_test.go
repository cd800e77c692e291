//go:build linux

package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
)

// The runner owns all children of its process, so each test runs it in a process of
// its own: this binary, started as a miniature run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "mini" {
		os.Exit(mini(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == "die" {
		Signals()
		Die(unix.SignalNum(os.Args[2]))
	}
	// Under nohup(1) our children would ignore it; one that we catch is theirs by default.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	os.Exit(m.Run())
}

// record is a line in the log of a miniature run.
type record struct {
	Start  bool // just before Start
	PID    int  // of the command
	Event  *Event
	Result *Result
	Error  string
	Code   int
	Now    boottime.Instant
}

// miniFlags are the flags of a miniature run.
type miniFlags struct {
	spec                                        Spec
	killIn, renew, stopAfter, stopKill, stopEnd time.Duration
	keep, log                                   string
}

func parseMini(args []string) *miniFlags {
	m := &miniFlags{}
	var survivors string
	f := flag.NewFlagSet("mini", flag.ExitOnError)
	f.StringVar(&m.log, "log", os.DevNull, "")
	f.StringVar(&m.spec.Mark, "mark", "", "")
	f.StringVar(&m.keep, "keep", "", "file to lock")
	f.DurationVar(&m.spec.Grace, "grace", time.Minute, "")
	f.DurationVar(&m.spec.MaxRun, "max-run", 0, "")
	f.StringVar(&survivors, "survivors", "wait", "")
	f.DurationVar(&m.killIn, "kill-in", 0, "deadline, from Start")
	f.DurationVar(&m.renew, "renew", 0, "renew the deadline so often")
	f.DurationVar(&m.stopAfter, "stop-after", 0, "call Stop then")
	f.DurationVar(&m.stopKill, "stop-kill", 0, "kill, from Stop; negative: at once")
	f.DurationVar(&m.stopEnd, "stop-end", 0, "end, from Stop")
	_ = f.Parse(args)
	m.spec.Survivors = map[string]Survivors{"wait": Wait, "kill": Kill, "ignore": Ignore}[survivors]
	m.spec.Args = f.Args()
	m.spec.Env = append(os.Environ(), "DLOCK_HELD="+m.spec.Mark+":"+os.Getenv("DLOCK_HELD"))
	m.spec.Signals = Signals()
	m.spec.Report = func(e Event) { m.write(record{Event: &e}) }
	return m
}

// write adds a line to the log.
func (m *miniFlags) write(r record) {
	out, err := os.OpenFile(m.log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		panic(err)
	}
	defer out.Close()
	r.Now = boottime.Now()
	line, _ := json.Marshal(r)
	_, _ = out.Write(append(line, '\n'))
}

// in returns the moment after d, or none.
func in(d time.Duration) boottime.Instant {
	if d == 0 {
		return 0
	}
	return boottime.Now().Add(d)
}

// mini runs a command as the flags say.
func mini(args []string) int {
	m := parseMini(args)
	if m.keep != "" {
		lock, err := os.OpenFile(m.keep, os.O_RDWR, 0)
		if err == nil {
			err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
		}
		if err != nil {
			panic(err)
		}
		m.spec.KeepOpen = []*os.File{lock}
	}
	var err error
	if m.spec.Path, err = Find(m.spec.Args[0]); err != nil {
		return m.failed(err)
	}
	m.spec.Kill = in(m.killIn)
	m.write(record{Start: true})
	c, err := Start(m.spec)
	if err != nil {
		return m.failed(err)
	}
	m.write(record{PID: c.pid})
	m.schedule(c)
	r := c.Wait()
	m.write(record{Result: &r})
	if r.DieBy != 0 {
		Die(r.DieBy)
	}
	return r.Code
}

func (m *miniFlags) failed(err error) int {
	m.write(record{Error: err.Error()})
	var start *StartError
	if !errors.As(err, &start) {
		panic(err)
	}
	return start.Code
}

// schedule does what a keeper of leases would do.
func (m *miniFlags) schedule(c *Command) {
	if m.renew > 0 {
		go func() {
			for ; ; time.Sleep(m.renew) {
				c.SetDeadline(in(m.killIn), 0)
			}
		}()
	}
	if m.stopAfter > 0 {
		time.AfterFunc(m.stopAfter, func() { c.Stop(in(m.stopKill), in(m.stopEnd)) })
	}
}

// run is a miniature run under test.
type run struct {
	*exec.Cmd
	t         *testing.T
	tag, mark string
	workDir   string
	keep, log string
	stdout    *bytes.Buffer
	waited    chan struct{}
}

var serial int

// newRun prepares a run of command; flags are mini's. Whatever it leaves is killed when
// the test ends.
func newRun(t *testing.T, flags string, command ...string) *run {
	t.Helper()
	serial++
	id := fmt.Sprintf("%d-%d-%d", os.Getpid(), serial, boottime.Now())
	r := &run{t: t, tag: "RUNNER_TEST=" + id, mark: "mark-" + id, stdout: new(bytes.Buffer), waited: make(chan struct{})}
	r.workDir = t.TempDir()
	r.keep, r.log = filepath.Join(r.workDir, "keep"), filepath.Join(r.workDir, "log")
	for _, path := range []string{r.keep, r.log} {
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		_ = os.Chmod(path, 0o666)
	}
	args := append([]string{"mini", "-log", r.log, "-mark", r.mark, "-keep", r.keep}, strings.Fields(flags)...)
	r.Cmd = exec.Command("/proc/self/exe", append(append(args, "--"), command...)...)
	r.Cmd.Path, _ = os.Executable()
	r.Args[0] = r.Path
	r.Env = append(os.Environ(), r.tag)
	r.Stdout, r.Stderr = r.stdout, os.Stderr
	r.WaitDelay = time.Millisecond // what the command left may hold the pipe
	// Not in our group: a test run at a terminal must not be in its foreground.
	r.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	t.Cleanup(func() {
		for range 3 {
			for _, p := range r.living() {
				_ = unix.Kill(p.PID, unix.SIGKILL)
			}
		}
	})
	return r
}

// begin starts it and returns the command's pid.
func (r *run) begin() int {
	r.t.Helper()
	r.launch()
	return r.await("the command's start", func(rec record) bool { return rec.PID != 0 }).PID
}

func (r *run) launch() {
	r.t.Helper()
	if err := r.Cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() {
		_ = r.Cmd.Wait()
		close(r.waited)
	}()
}

// finish waits for the end of the run and returns its result.
func (r *run) finish() Result {
	r.t.Helper()
	r.ended()
	for _, rec := range r.records() {
		if rec.Result != nil {
			return *rec.Result
		}
	}
	r.t.Fatalf("no result: %+v", r.records())
	return Result{}
}

// ended waits for the end of the run's own process.
func (r *run) ended() {
	r.t.Helper()
	select {
	case <-r.waited:
	case <-time.After(patience):
		r.t.Fatalf("the run does not end; alive: %v", names(r.living()))
	}
}

func (r *run) records() []record {
	data, _ := os.ReadFile(r.log)
	var list []record
	for line := range strings.Lines(string(data)) {
		var rec record
		if json.Unmarshal([]byte(line), &rec) == nil {
			list = append(list, rec)
		}
	}
	return list
}

func (r *run) await(what string, is func(record) bool) record {
	r.t.Helper()
	var found record
	eventually(r.t, what, func() bool {
		for _, rec := range r.records() {
			if is(rec) {
				found = rec
				return true
			}
		}
		return false
	})
	return found
}

func (r *run) awaitEvent(kind EventKind) record {
	r.t.Helper()
	return r.await(fmt.Sprintf("event %d", kind), func(rec record) bool { return rec.Event != nil && rec.Event.Kind == kind })
}

// living returns the run's living processes, its own and the command's; not the guard.
func (r *run) living() []proc.Process { return carriers(r.tag) }

// left returns what lives of the command.
func (r *run) left() []proc.Process { return carriers(r.mark) }

func carriers(mark string) []proc.Process {
	list, _ := proc.List()
	var found []proc.Process
	for _, p := range list {
		if !p.Zombie && carries(p, mark) && !strings.Contains(proc.Command(p.PID), " mini ") {
			found = append(found, p)
		}
	}
	return found
}

// lockable tells whether another contender gets the lock.
func (r *run) lockable() bool {
	f, err := os.OpenFile(r.keep, os.O_RDWR, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// unique makes a sleep command that is nobody else's, to be found without a mark.
func unique(sleep string) string {
	serial++
	return fmt.Sprintf("%s.%d%05d", sleep, os.Getpid(), serial)
}

// running tells whether a process with this command line lives.
func running(command string) bool { return len(find(command)) > 0 }

func find(command string) []proc.Process {
	list, _ := proc.List()
	return slices.DeleteFunc(list, func(p proc.Process) bool { return p.Zombie || proc.Command(p.PID) != command })
}

func names(list []proc.Process) []Named { return named(list) }

// patience is how long a condition may take that must come true; it decides nothing
// but when a broken test gives up.
const patience = 20 * time.Second

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

// has waits until processes with these command lines live.
func (r *run) has(commands ...string) {
	r.t.Helper()
	eventually(r.t, strings.Join(commands, ", "), func() bool {
		count := map[string]int{}
		for _, p := range r.left() {
			count[proc.Command(p.PID)]++
		}
		for _, c := range commands {
			if count[c]--; count[c] < 0 {
				return false
			}
		}
		return true
	})
}

func (r *run) gone() {
	r.t.Helper()
	eventually(r.t, "the end of what the command left", func() bool { return len(r.left()) == 0 })
}

// says waits until the command has printed a word to its output.
func (r *run) says(path, word string) {
	r.t.Helper()
	eventually(r.t, word, func() bool {
		data, _ := os.ReadFile(path)
		return strings.Contains(string(data), word)
	})
}

// output redirects the command's standard output to a file.
func (r *run) output() string {
	path := filepath.Join(r.workDir, "out")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o666)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { f.Close() })
	r.Stdout = f
	return path
}
