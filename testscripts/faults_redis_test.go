//go:build linux

package testscripts

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/backend/redis"
	"github.com/dlock/dlock/internal/proc"
)

// leased is a dlock that runs a command under a lease, with what it says in a file.
type leased struct {
	*exec.Cmd
	t     *testing.T
	mark  string // in the environment of the command's processes
	ended chan struct{}
}

// startLeased starts dlock with these arguments after the backend's.
func startLeased(t *testing.T, url string, args ...string) *leased {
	t.Helper()
	l := &leased{Cmd: dlock(t.TempDir(), url, args...), t: t, ended: make(chan struct{})}
	l.mark = "LEASE_TEST=" + l.Dir
	l.Env = append(os.Environ(), l.mark)
	var files []*os.File
	for _, name := range []string{"stdout", "stderr"} {
		f, err := os.Create(filepath.Join(l.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	l.Stdout, l.Stderr = files[0], files[1]
	if err := l.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = l.Wait() // ProcessState tells
		close(l.ended)
	}()
	t.Cleanup(func() {
		l.signal(syscall.SIGCONT)
		l.signal(syscall.SIGKILL)
		<-l.ended
	})
	return l
}

func (l *leased) signal(s syscall.Signal) { _ = l.Process.Signal(s) } // fails only for a dead one

func (l *leased) said() string {
	text, _ := os.ReadFile(filepath.Join(l.Dir, "stderr"))
	return string(text)
}

func (l *leased) exists(name string) bool {
	_, err := os.Stat(filepath.Join(l.Dir, name))
	return err == nil
}

func (l *leased) write(name string) {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.Dir, name), nil, 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l *leased) await(what string, done func() bool) {
	l.t.Helper()
	for limit := time.Now().Add(patience); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			l.t.Fatalf("timed out: %s; stderr:\n%s", what, l.said())
		}
	}
}

func (l *leased) awaitStart() {
	l.t.Helper()
	l.await("the command's start", func() bool { return l.exists("started") })
}

// alive lists the command's processes: those with the mark that are not of dlock.
func (l *leased) alive() (list []int) {
	all, _ := proc.List()
	for _, p := range all {
		if p.Zombie {
			continue
		}
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
		if strings.Contains(string(env), l.mark+"\x00") && filepath.Base(exe) != "dlock" {
			list = append(list, p.PID)
		}
	}
	return list
}

// code waits for the end and returns the exit code, as a shell tells it.
func (l *leased) code() int {
	l.t.Helper()
	select {
	case <-l.ended:
	case <-time.After(patience):
		l.t.Fatalf("dlock does not end; stderr:\n%s", l.said())
	}
	if status := l.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return l.ProcessState.ExitCode()
}

func (l *leased) wantCode(want int) {
	l.t.Helper()
	if got := l.code(); got != want {
		l.t.Errorf("exit code %d, want %d; stderr:\n%s", got, want, l.said())
	}
}

// awaitRenewal waits until the lock's key has longer to live than a moment ago.
func (l *leased) awaitRenewal(s *redistest.Server, name string) {
	l.t.Helper()
	client, last := s.Client(), time.Hour
	l.await("a renewal", func() bool {
		before := last
		last = client.PTTL(l.t.Context(), "dlock:{"+name+"}").Val()
		return last > before
	})
}

// lock opens the locks of a server, for a contender of the test's own.
func lock(t *testing.T, s *redistest.Server) *redis.Backend {
	t.Helper()
	b := redis.New(redis.Options{Namespace: "dlock", Addrs: []string{s.Addr()}})
	t.Cleanup(func() { b.Close() })
	return b
}

// tree is a command that is more than one process, and ignores SIGTERM.
const tree = `trap '' TERM; touch started; sleep 300 | cat & sleep 300; sleep 300`

// until is a command that waits for a file, and ends with a code.
func until(code int) string {
	return fmt.Sprintf("touch started; until [ -e go ]; do sleep 0.02; done; exit %d", code)
}

// ends are ways to cut a lease off. Each returns the exit code that is due, after the
// next holder has been there.
var ends = map[string]func(l *leased, r *relay.Relay, s *redistest.Server) func() int{
	"server cut off": func(_ *leased, r *relay.Relay, _ *redistest.Server) func() int {
		r.Hole()
		return func() int { return 76 }
	},
	"server cut off, and the way back": func(_ *leased, r *relay.Relay, _ *redistest.Server) func() int {
		r.HoldReplies()
		return func() int { return 76 }
	},
	"server gone": func(_ *leased, r *relay.Relay, _ *redistest.Server) func() int {
		r.Refuse()
		return func() int { return 76 }
	},
	"server stopped": func(l *leased, _ *relay.Relay, s *redistest.Server) func() int {
		s.Stop()
		l.code()
		s.Cont()
		return func() int { return 76 }
	},
	"dlock stopped": func(l *leased, _ *relay.Relay, _ *redistest.Server) func() int {
		l.signal(syscall.SIGSTOP)
		return func() int { l.signal(syscall.SIGCONT); return 76 }
	},
	"dlock killed": func(l *leased, _ *relay.Relay, _ *redistest.Server) func() int {
		l.signal(syscall.SIGKILL)
		return func() int { return 128 + 9 }
	},
}

// TestCommandIsDeadBeforeAnybodyElseHasTheLock: when a contender straight at the server
// gets the lock, no process of the command lives.
func TestCommandIsDeadBeforeAnybodyElseHasTheLock(t *testing.T) {
	t.Parallel()
	runs := 2
	if os.Getenv("DLOCK_FULL") != "" {
		runs = 34
	}
	slots := make(chan struct{}, 4) // several at once, but not all
	for what, end := range ends {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for i := range runs {
				slots <- struct{}{}
				t.Run(strconv.Itoa(i), func(t *testing.T) { cutOff(t, end) })
				<-slots
			}
		})
	}
}

func cutOff(t *testing.T, end func(*leased, *relay.Relay, *redistest.Server) func() int) {
	ttl := time.Second + rand.N(4*time.Second)
	s := redistest.Start(t)
	r := relay.New(t, s.Addr())
	l := startLeased(t, "redis://"+r.Addr(), "run", "--ttl", ttl.Round(time.Millisecond).String(), "j", "--", "sh", "-c", tree)
	l.awaitStart()
	next := backendtest.Wait(t, lock(t, s), backendtest.Request("j", backendtest.Exclusive))
	time.Sleep(rand.N(ttl))
	code := end(l, r, s)
	h := next.Hold(t)
	if alive := l.alive(); len(alive) > 0 {
		t.Errorf("ttl %v: somebody else has the lock, and of the command live %v; stderr:\n%s", ttl, alive, l.said())
	}
	l.wantCode(code())
	if _, err := h.Renew(t.Context()); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	backendtest.MustRelease(t, h)
}

func TestRestartedServerWithoutDataStopsTheCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := startLeased(t, s.URL(), "run", "--ttl", "2s", "j", "--", "sh", "-c", tree)
	l.awaitStart()
	s.Restart()
	l.wantCode(76)
	if alive := l.alive(); len(alive) > 0 {
		t.Errorf("of the command live %v", alive)
	}
}

func TestRestartedServerWithItsDataDisturbsNobody(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	l := startLeased(t, s.URL(), "run", "--ttl", "6s", "--grace", "1", "j", "--", "sh", "-c", until(0))
	l.awaitStart()
	s.Restart()
	for range 2 {
		l.awaitRenewal(s, "j")
	}
	l.write("go")
	l.wantCode(0)
	if said := l.said(); said != "" {
		t.Errorf("stderr:\n%s", said)
	}
}

func TestReleaseIntoAHole(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client()
	start := func(t *testing.T, ttl string) (*leased, *relay.Relay) {
		t.Parallel()
		r := relay.New(t, s.Addr())
		l := startLeased(t, "redis://"+r.Addr(), "run", "--ttl", ttl, "--grace", "1", ttl, "--", "sh", "-c", until(7))
		l.awaitStart()
		r.Hole()
		l.write("go")
		l.await("the command's end", func() bool { return len(l.alive()) == 0 })
		return l, r
	}
	t.Run("for good", func(t *testing.T) {
		l, _ := start(t, "3s")
		l.wantCode(7)
		if said := l.said(); !regexp.MustCompile(`^dlock: warning: 3s: not released, ends by itself in .*\n$`).MatchString(said) {
			t.Errorf("stderr:\n%s", said)
		}
	})
	t.Run("for a long lease", func(t *testing.T) {
		l, _ := start(t, "1h")
		l.wantCode(7)
		if said := l.said(); !strings.Contains(said, "not released, ends by itself in 59m") && !strings.Contains(said, "in 1h") {
			t.Errorf("stderr:\n%s", said)
		}
	})
	t.Run("for a while", func(t *testing.T) {
		l, r := start(t, "1m")
		time.Sleep(3 * time.Second)
		r.Pass()
		l.wantCode(7)
		if said := l.said(); said != "" || client.Exists(t.Context(), "dlock:{1m}").Val() != 0 {
			t.Errorf("not released; stderr:\n%s", said)
		}
	})
	t.Run("with a second interrupt", func(t *testing.T) {
		l, _ := start(t, "2h")
		begun := time.Now()
		for done := false; !done; { // the first ones may still go to the runner
			l.signal(syscall.SIGINT)
			select {
			case <-l.ended:
				done = true
			case <-time.After(20 * time.Millisecond):
			}
		}
		t.Logf("ended %v after the interrupt", time.Since(begun))
		l.wantCode(7)
		if said := l.said(); !strings.Contains(said, "not released, ends by itself in") {
			t.Errorf("stderr:\n%s", said)
		}
	})
}

// silentListener accepts connections and says nothing. It tells of each.
func silentListener(t *testing.T) (addr string, accepted chan net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	accepted = make(chan net.Conn, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			accepted <- c
		}
	}()
	return l.Addr().String(), accepted
}

func TestServiceThatDoesNotAnswerEndsTheWait(t *testing.T) {
	t.Parallel()
	silent, _ := silentListener(t)
	closed := redistest.Start(t)
	closed.Kill()
	stopped := redistest.Start(t)
	stopped.Stop()
	t.Cleanup(stopped.Cont) // after the subtests
	for what, addr := range map[string]string{
		"closed port": closed.Addr(), "silent listener": silent, "stopped server": stopped.Addr(),
		"unroutable address": "10.255.255.1:6379", "unresolvable name": "no-such-host.invalid:6379",
	} {
		for _, wait := range [][]string{{"-w", "2s"}, {"-n"}} {
			t.Run(what+" "+strings.Join(wait, " "), func(t *testing.T) {
				t.Parallel()
				begun := time.Now()
				l := startLeased(t, "redis://:secret@"+addr, append(append([]string{"run"}, wait...), "j", "--", "touch", "started")...)
				l.wantCode(69)
				t.Logf("after %v: %s", time.Since(begun).Round(time.Millisecond), l.said())
				said := l.said()
				if strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "dlock: error: j: ") || strings.Contains(said, "secret") {
					t.Errorf("stderr:\n%s", said)
				}
				if l.exists("started") {
					t.Error("the command ran")
				}
			})
		}
	}
}

var endSignals = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
}

func TestSignalsWhileConnecting(t *testing.T) {
	t.Parallel()
	for _, sig := range endSignals {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			addr, accepted := silentListener(t)
			l := startLeased(t, "redis://"+addr, "run", "j", "--", "touch", "started")
			backendtest.Receive(t, accepted, "a connection")
			l.signal(sig)
			l.endedBy(sig)
		})
	}
}

func TestSignalsWhileWaiting(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := lock(t, s)
	for _, sig := range endSignals {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			name := sig.String()
			h := backendtest.MustAcquire(t, b, backendtest.Request(name, backendtest.Exclusive))
			l := startLeased(t, s.URL(), "run", "-q", name, "--", "touch", "started")
			l.await("its place in line", func() bool { return len(backendtest.InspectOne(t, b, name).Waiters) == 1 })
			l.signal(sig)
			l.endedBy(sig)
			if st := backendtest.InspectOne(t, b, name); len(st.Waiters) > 0 || len(st.Holders) != 1 {
				t.Errorf("left behind: %+v", st)
			}
			backendtest.MustRelease(t, h)
		})
	}
}

// TestSignalWhileTheAnswerIsOnItsWay signals a dlock that has the lock and does not know
// it yet.
func TestSignalWhileTheAnswerIsOnItsWay(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client()
	r := relay.New(t, s.Addr())
	r.Delay(50 * time.Millisecond)
	for _, sig := range endSignals {
		l := startLeased(t, "redis://"+r.Addr(), "run", "j", "--", "touch", "started")
		l.await("the take", func() bool { return client.Exists(t.Context(), "dlock:{j}").Val() == 1 })
		l.signal(sig)
		l.endedBy(sig)
		if n := client.Exists(t.Context(), "dlock:{j}").Val(); n != 0 {
			t.Errorf("%v: the lock is still held", sig)
			client.Del(t.Context(), "dlock:{j}")
		}
	}
}

// endedBy wants the end that a signal makes, with nothing run and nothing said.
func (l *leased) endedBy(sig syscall.Signal) {
	l.t.Helper()
	begun := time.Now()
	l.wantCode(128 + int(sig))
	l.t.Logf("after %v", time.Since(begun).Round(time.Millisecond))
	if said := l.said(); said != "" || l.exists("started") {
		l.t.Errorf("the command ran: %v; stderr:\n%s", l.exists("started"), said)
	}
}

func TestKeyInOtherHandsStopsTheCommand(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := s.Client()
	for what, order := range map[string][]any{
		"overwritten": {"set", "dlock:{overwritten}", "other", "px", 60000},
		"deleted":     {"del", "dlock:{deleted}"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := startLeased(t, s.URL(), "run", "--ttl", "3s", "--grace", "1", what, "--", "sh", "-c", `trap 'exit 0' TERM; touch started; while :; do sleep 0.05; done`)
			l.awaitStart()
			if err := client.Do(t.Context(), order...).Err(); err != nil {
				t.Fatal(err)
			}
			before := client.Get(t.Context(), "dlock:{"+what+"}").Val()
			l.wantCode(76)
			if after := client.Get(t.Context(), "dlock:{"+what+"}").Val(); after != before {
				t.Errorf("the key was %q and is %q", before, after)
			}
			if said, want := l.said(), "dlock: error: "+what+": lost: no longer held; the command is being stopped\n"; !strings.Contains(said, want) { // the shell may say something, too
				t.Errorf("stderr:\n%swant:\n%s", said, want)
			}
		})
	}
}

// TestSuccessIsSilent looks at the output of runs whose renewals went well, and not so well.
func TestSuccessIsSilent(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	for what, meanwhile := range map[string]func(*relay.Relay){
		"renewed": func(*relay.Relay) {}, "cut": (*relay.Relay).Cut,
		"a renewal failed": func(r *relay.Relay) { r.Refuse(); time.Sleep(2500 * time.Millisecond); r.Pass() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := relay.New(t, s.Addr())
			l := startLeased(t, "redis://"+r.Addr(), "run", "--ttl", "6s", "--grace", "1", what, "--", "sh", "-c", `printf 'a\0b'; `+until(0))
			l.awaitStart()
			meanwhile(r)
			l.awaitRenewal(s, what)
			l.write("go")
			l.wantCode(0)
			out, _ := os.ReadFile(filepath.Join(l.Dir, "stdout"))
			if string(out) != "a\x00b" || l.said() != "" {
				t.Errorf("stdout %q, stderr %q", out, l.said())
			}
		})
	}
}

func TestPasswordIsShownNowhere(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, "--requirepass", "secret")
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte("redis://:secret@"+s.Addr()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what string
		code int
	}{
		{`-v run j -- sh -c 'tr "\0" "\n" </proc/$PPID/cmdline; env'`, 0},
		{"acquire --ttl 1h k", 0},
		{"run -n k -- true", 75},
		{"inspect", 0},
		{"inspect --json -v", 0},
		{"release k no", 76},
		{"release --force --yes k ffffff", 76},
	} {
		what, code := step.what, step.code
		c := exec.Command("sh", "-c", "unset DLOCK_BACKEND; exec dlock --backend-file "+file+" "+what)
		out, _ := c.CombinedOutput()
		if got := c.ProcessState.ExitCode(); got != code || strings.Contains(string(out), "secret") {
			t.Errorf("dlock %s: exit code %d, want %d\n%s", what, got, code, out)
		}
	}
}

func TestWaitIsIndependentOfTheTTL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := lock(t, s)
	holder := startLeased(t, s.URL(), "run", "--ttl", "2s", "j", "--", "sh", "-c", until(0))
	holder.awaitStart()
	waiter := startLeased(t, s.URL(), "run", "--ttl", "2s", "-w", "30s", "j", "--", "touch", "started")
	waiter.await("its place in line", func() bool { return len(backendtest.InspectOne(t, b, "j").Waiters) == 1 })
	for deadline := time.Now().Add(6 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if st := backendtest.InspectOne(t, b, "j"); len(st.Waiters) != 1 || len(st.Holders) != 1 {
			t.Fatalf("in the middle: %+v", st)
		}
	}
	holder.write("go")
	holder.wantCode(0)
	waiter.wantCode(0)
	if !waiter.exists("started") {
		t.Error("the waiter's command did not run")
	}
}

// memoryLimit is what a dlock that waits or holds may have in memory, in KiB.
const memoryLimit = 20 * 1024

func TestMemoryOfAWaiterAndAHolder(t *testing.T) {
	s := redistest.Start(t)
	b := lock(t, s)
	dir := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "dlock"), "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	saved := binDir
	binDir = dir
	defer func() { binDir = saved }()
	holder := startLeased(t, s.URL(), "run", "--ttl", "1s", "j", "--", "sh", "-c", until(0))
	holder.awaitStart()
	waiter := startLeased(t, s.URL(), "run", "--ttl", "1s", "j", "--", "true")
	waiter.await("its place in line", func() bool { return len(backendtest.InspectOne(t, b, "j").Waiters) == 1 })
	time.Sleep(3 * time.Second) // renewals and heartbeats
	for what, l := range map[string]*leased{"holder": holder, "waiter": waiter} {
		kib := memory(t, l.Process.Pid)
		t.Logf("%s: %.1f MiB", what, float64(kib)/1024)
		if kib > memoryLimit {
			t.Errorf("the %s has %d KiB in memory, want at most %d", what, kib, memoryLimit)
		}
	}
	holder.write("go")
	holder.wantCode(0)
	waiter.wantCode(0)
}

// memory is the resident set of a process, in KiB.
func memory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s*(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no VmRSS in %s", text)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
