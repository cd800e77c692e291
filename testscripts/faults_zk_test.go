//go:build linux

package testscripts

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/backend/backendtest/zktest"
	"github.com/dlock/dlock/backend/zookeeper"
)

// zkLock opens the locks below /x of servers, for a contender of the test's own.
func zkLock(t *testing.T, servers ...*zktest.Server) *zookeeper.Backend {
	t.Helper()
	opts := zookeeper.Options{Chroot: "/x"}
	for _, s := range servers {
		opts.Addrs = append(opts.Addrs, s.Addr())
	}
	b := zookeeper.New(opts)
	t.Cleanup(func() { b.Close() })
	return b
}

func zkURL(addr string) string { return "zk://" + addr + "/x" }

// zkEnds are ways to cut a lease off. Each returns the exit code that is due, after the
// next holder has been there.
var zkEnds = map[string]func(l *leased, r *relay.Relay, s *zktest.Server) func() int{
	"server cut off": func(_ *leased, r *relay.Relay, _ *zktest.Server) func() int {
		r.Hole()
		return func() int { r.Pass(); return 76 } // and back: a late release would get through
	},
	"server cut off, and the way back": func(_ *leased, r *relay.Relay, _ *zktest.Server) func() int {
		r.HoldReplies()
		return func() int { return 76 }
	},
	"server gone": func(_ *leased, r *relay.Relay, _ *zktest.Server) func() int {
		r.Refuse()
		return func() int { return 76 }
	},
	"server stopped": func(l *leased, _ *relay.Relay, s *zktest.Server) func() int {
		s.Stop()
		l.code()
		s.Cont()
		return func() int { return 76 }
	},
	"dlock stopped": func(l *leased, _ *relay.Relay, _ *zktest.Server) func() int {
		l.signal(syscall.SIGSTOP)
		return func() int { l.signal(syscall.SIGCONT); return 76 }
	},
	"dlock killed": func(l *leased, _ *relay.Relay, _ *zktest.Server) func() int {
		l.signal(syscall.SIGKILL)
		return func() int { return 128 + 9 }
	},
}

// TestZooKeeperCommandIsDeadBeforeAnybodyElseHasTheLock: when a contender straight at the
// server gets the lock, no process of the command lives, and what dlock does later
// touches nobody.
func TestZooKeeperCommandIsDeadBeforeAnybodyElseHasTheLock(t *testing.T) {
	t.Parallel()
	runs := 2
	if os.Getenv("DLOCK_FULL") != "" {
		runs = 100
	}
	slots := make(chan struct{}, 3) // several at once, but not all
	for what, end := range zkEnds {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := zktest.Start(t)
			for i := range runs {
				slots <- struct{}{}
				t.Run(strconv.Itoa(i), func(t *testing.T) { cutOffZk(t, s, end) })
				<-slots
			}
		})
	}
}

func cutOffZk(t *testing.T, s *zktest.Server, end func(*leased, *relay.Relay, *zktest.Server) func() int) {
	ttl := time.Second + rand.N(4*time.Second)
	r := relay.New(t, s.Addr())
	l := startLeased(t, zkURL(r.Addr()), "run", "--ttl", ttl.Round(time.Millisecond).String(), "j", "--", "sh", "-c", tree)
	l.awaitStart()
	next := backendtest.Wait(t, zkLock(t, s), backendtest.Request("j", backendtest.Exclusive))
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

// TestZooKeeperServerWithoutItsDataStopsTheCommand: it knows no session, and refuses who
// has seen more than it has.
func TestZooKeeperServerWithoutItsDataStopsTheCommand(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t)
	l := startLeased(t, zkURL(s.Addr()), "run", "--ttl", "3s", "j", "--", "sh", "-c", tree)
	l.awaitStart()
	s.Wipe()
	l.wantCode(76)
	if alive := l.alive(); len(alive) > 0 {
		t.Errorf("of the command live %v", alive)
	}
}

// TestZooKeeperElectionDisturbsNobody kills the leader of an ensemble under a holder and a
// waiter.
func TestZooKeeperElectionDisturbsNobody(t *testing.T) {
	t.Parallel()
	e := zktest.StartEnsemble(t, 3)
	url := e.URL() + "/x"
	l := startLeased(t, url, "run", "--ttl", "15s", "--grace", "1", "j", "--", "sh", "-c", until(0))
	l.awaitStart()
	b := zkLock(t, e.Servers...)
	waiter := startLeased(t, url, "run", "-q", "--ttl", "15s", "j", "--", "touch", "started")
	waiter.await("its place in line", func() bool { return len(backendtest.InspectOne(t, b, "j").Waiters) == 1 })
	leader := e.Leader(t)
	leader.Kill()
	l.await("another leader", func() bool { return e.Leader(t) != leader })
	time.Sleep(5 * time.Second) // renewals: more than one is due
	l.write("go")
	l.wantCode(0)
	waiter.wantCode(0)
	if said := l.said() + waiter.said(); said != "" || !waiter.exists("started") {
		t.Errorf("stderr:\n%s", said)
	}
}

func TestZooKeeperReleaseIntoAHole(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t)
	b := zkLock(t, s)
	start := func(t *testing.T, ttl string) (*leased, *relay.Relay) {
		t.Parallel()
		r := relay.New(t, s.Addr())
		l := startLeased(t, zkURL(r.Addr()), "run", "--ttl", ttl, "--grace", "1", ttl, "--", "sh", "-c", until(7))
		l.awaitStart()
		r.Hole()
		l.write("go")
		l.await("the command's end", func() bool { return len(l.alive()) == 0 })
		return l, r
	}
	t.Run("for good", func(t *testing.T) {
		l, _ := start(t, "4s")
		l.wantCode(7)
		if said := l.said(); !regexp.MustCompile(`^dlock: warning: 4s: not released, ends by itself in .*\n$`).MatchString(said) {
			t.Errorf("stderr:\n%s", said)
		}
	})
	t.Run("for a while", func(t *testing.T) {
		l, r := start(t, "50s")
		time.Sleep(3 * time.Second)
		r.Pass()
		l.wantCode(7)
		if said := l.said(); said != "" || len(backendtest.InspectOne(t, b, "50s").Holders) != 0 {
			t.Errorf("not released; stderr:\n%s", said)
		}
	})
}

func TestZooKeeperThatDoesNotAnswerEndsTheWait(t *testing.T) {
	t.Parallel()
	silent, _ := silentListener(t)
	closed, stopped := zktest.Start(t), zktest.Start(t)
	closed.Kill()
	stopped.Stop()
	t.Cleanup(stopped.Cont) // after the subtests
	e := zktest.StartEnsemble(t, 3)
	for _, s := range e.Servers[1:] {
		s.Kill()
	}
	backendtest.Eventually(t, "the last one serves nobody", func() bool { return e.Servers[0].Mode() == "" })
	for what, addr := range map[string]string{
		"closed port": closed.Addr(), "silent listener": silent, "stopped server": stopped.Addr(), "no quorum": strings.TrimPrefix(e.URL(), "zk://"),
		"unroutable address": "10.255.255.1:2181", "unresolvable name": "no-such-host.invalid:2181",
	} {
		for _, wait := range [][]string{{"-w", "2s"}, {"-n"}} {
			t.Run(what+" "+strings.Join(wait, " "), func(t *testing.T) {
				t.Parallel()
				begun := time.Now()
				l := startLeased(t, "zk://user:secret@"+addr+"/x", append(append([]string{"run"}, wait...), "j", "--", "touch", "started")...)
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

func TestZooKeeperSignalsWhileConnecting(t *testing.T) {
	t.Parallel()
	for _, sig := range endSignals {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			addr, accepted := silentListener(t)
			l := startLeased(t, zkURL(addr), "run", "j", "--", "touch", "started")
			backendtest.Receive(t, accepted, "a connection")
			l.signal(sig)
			l.endedBy(sig)
		})
	}
}

func TestZooKeeperSignalsWhileWaiting(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t)
	b := zkLock(t, s)
	for _, sig := range endSignals {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			name := sig.String()
			req := backendtest.Request(name, backendtest.Exclusive)
			h := backendtest.MustAcquire(t, b, req)
			l := startLeased(t, zkURL(s.Addr()), "run", "-q", name, "--", "touch", "started")
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

// TestZooKeeperSignalWhileTheAnswerIsOnItsWay signals a dlock that has the lock and does
// not know it yet.
func TestZooKeeperSignalWhileTheAnswerIsOnItsWay(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t)
	client := s.Client()
	r := relay.New(t, s.Addr())
	r.Delay(50 * time.Millisecond)
	nodes := func() int {
		list, _, err := client.Children("/x/j")
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			t.Fatal(err)
		}
		return len(list)
	}
	for _, sig := range endSignals {
		l := startLeased(t, zkURL(r.Addr()), "run", "j", "--", "touch", "started")
		l.await("the take", func() bool { return nodes() > 0 })
		l.signal(sig)
		l.endedBy(sig)
		if n := nodes(); n != 0 {
			t.Errorf("%v: %d nodes are left", sig, n)
			backendtest.Eventually(t, "they end with the session", func() bool { return nodes() == 0 })
		}
	}
}

// TestZooKeeperNodeDeletedByHandStopsTheCommand: word of it comes at once.
func TestZooKeeperNodeDeletedByHandStopsTheCommand(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t)
	client := s.Client()
	l := startLeased(t, zkURL(s.Addr()), "run", "--ttl", "50s", "--grace", "1", "j", "--", "sh", "-c", `trap 'exit 0' TERM; touch started; while :; do sleep 0.05; done`)
	l.awaitStart()
	nodes, _, err := client.Children("/x/j")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if err := client.Delete("/x/j/"+n, -1); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	next := backendtest.MustAcquire(t, zkLock(t, s), backendtest.Request("j", backendtest.Exclusive))
	l.wantCode(76)
	t.Logf("after %v", time.Since(begun).Round(time.Millisecond))
	if said, want := l.said(), "dlock: error: j: lost: no longer held; the command is being stopped\n"; !strings.Contains(said, want) { // the shell may say something, too
		t.Errorf("stderr:\n%swant:\n%s", said, want)
	}
	if _, err := next.Renew(t.Context()); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	backendtest.MustRelease(t, next)
}

// TestZooKeeperSuccessIsSilent looks at the output of runs whose renewals went well, and
// not so well, with a dead server in the list.
func TestZooKeeperSuccessIsSilent(t *testing.T) {
	t.Parallel()
	s, dead := zktest.Start(t), zktest.Start(t)
	dead.Kill()
	client := s.Client()
	for what, meanwhile := range map[string]func(*relay.Relay){
		"renewed": func(*relay.Relay) {}, "cut": (*relay.Relay).Cut,
		"a renewal failed": func(r *relay.Relay) { r.Refuse(); time.Sleep(2 * time.Second); r.Pass() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			r := relay.New(t, s.Addr())
			l := startLeased(t, zkURL(dead.Addr()+","+r.Addr()), "run", "--ttl", "6s", "--grace", "1", what, "--", "sh", "-c", `printf 'a\0b'; `+until(0))
			l.awaitStart()
			meanwhile(r)
			last := int32(-1)
			for range 2 {
				l.await("a renewal", func() bool {
					v := zkVersion(t, client, "/x/"+what)
					later := last >= 0 && v > last
					last = v
					return later
				})
			}
			l.write("go")
			l.wantCode(0)
			out, _ := os.ReadFile(filepath.Join(l.Dir, "stdout"))
			if string(out) != "a\x00b" || l.said() != "" {
				t.Errorf("stdout %q, stderr %q", out, l.said())
			}
		})
	}
}

// zkVersion is how often the contender below a lock has written its node.
func zkVersion(t *testing.T, c *zk.Conn, lock string) int32 {
	t.Helper()
	nodes, _, err := c.Children(lock)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if strings.Contains(n, "-lock-") {
			_, stat, err := c.Get(lock + "/" + n)
			if err != nil {
				t.Fatal(err)
			}
			return stat.Version
		}
	}
	t.Fatalf("nobody is below %s: %v", lock, nodes)
	panic("unreachable")
}

// TestZooKeeperUsers: what one user takes is for that user alone; a password is shown
// nowhere.
func TestZooKeeperUsers(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t)
	dir := t.TempDir()
	for user, url := range map[string]string{
		"alice": "zk://alice:secret@" + s.Addr() + "/y", "mallory": "zk://alice:secret2@" + s.Addr() + "/y",
		"scheme": "zk://" + s.Addr() + "/y?auth=digest:alice:secret", "bad": "zk://" + s.Addr() + "/y?auth=nonsense:secret",
		"nobody": "zk://" + s.Addr() + "/y",
	} {
		if err := os.WriteFile(filepath.Join(dir, user), []byte(url), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		user, what string
		code       int
	}{
		{"alice", `-v run j -- sh -c 'tr "\0" "\n" </proc/$PPID/cmdline; env'`, 0},
		{"alice", "acquire --ttl 1h k", 0},
		{"scheme", "run -n k -- true", 75},
		{"scheme", "inspect k", 0},
		{"alice", "inspect --json -v", 0},
		{"alice", "release k no", 76},
		{"alice", "release --force --yes k ffffff", 76},
		{"mallory", "run -n k -- true", 77},
		{"mallory", "inspect k", 77},
		{"nobody", "run -n j -- true", 77},
		{"nobody", "acquire new", 77},
		{"bad", "run -n j -- true", 77},
	} {
		c := exec.Command("sh", "-c", fmt.Sprintf("unset DLOCK_BACKEND; exec dlock --backend-file %s/%s %s", dir, step.user, step.what))
		out, _ := c.CombinedOutput()
		if got := c.ProcessState.ExitCode(); got != step.code || strings.Contains(string(out), "secret") {
			t.Errorf("%s: dlock %s: exit code %d, want %d\n%s", step.user, step.what, got, step.code, out)
		}
	}
}

// TestZooKeeperClampIsToldOnce: a TTL that the server does not grant.
func TestZooKeeperClampIsToldOnce(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t, "maxSessionTimeout=3000")
	r := relay.New(t, s.Addr())
	l := startLeased(t, zkURL(r.Addr()), "run", "--ttl", "30s", "--grace", "1", "j", "--", "sh", "-c", tree)
	l.awaitStart()
	next := backendtest.Wait(t, zkLock(t, s), backendtest.Request("j", backendtest.Exclusive))
	if st := backendtest.InspectOne(t, zkLock(t, s), "j"); len(st.Holders) != 1 || st.Holders[0].Left != 3*time.Second {
		t.Errorf("shown as %+v", st.Holders)
	}
	r.Hole()
	h := next.Hold(t)
	if alive := l.alive(); len(alive) > 0 {
		t.Errorf("somebody else has the lock, and of the command live %v", alive)
	}
	l.wantCode(76)
	if said := l.said(); strings.Count(said, "session timeout of 3s") != 1 {
		t.Errorf("stderr:\n%s", said)
	}
	backendtest.MustRelease(t, h)
}

// TestZooKeeperMemory: a waiter and a holder are small.
func TestZooKeeperMemory(t *testing.T) {
	s := zktest.Start(t)
	b := zkLock(t, s)
	holder := startLeased(t, zkURL(s.Addr()), "run", "--ttl", "5s", "j", "--", "sh", "-c", until(0))
	holder.awaitStart()
	waiter := startLeased(t, zkURL(s.Addr()), "run", "-q", "--ttl", "5s", "j", "--", "true")
	waiter.await("its place in line", func() bool { return len(backendtest.InspectOne(t, b, "j").Waiters) == 1 })
	time.Sleep(3 * time.Second) // renewals and pings
	limit := memoryLimit
	if len(raceFlags) > 0 {
		limit *= 8 // the race detector's share
	}
	for what, l := range map[string]*leased{"holder": holder, "waiter": waiter} {
		kib := memory(t, l.Process.Pid)
		t.Logf("%s: %.1f MiB", what, float64(kib)/1024)
		if kib > limit {
			t.Errorf("the %s has %d KiB in memory, want at most %d", what, kib, limit)
		}
	}
	holder.write("go")
	holder.wantCode(0)
	waiter.wantCode(0)
}
