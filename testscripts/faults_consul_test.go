//go:build linux

package testscripts

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/consultest"
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/backend/consul"
)

// consulLock opens the locks below x, for a contender of the test's own.
func consulLock(t *testing.T, s *consultest.Server) *consul.Backend {
	t.Helper()
	u, err := url.Parse(consulURL(s.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	opts, err := consul.ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	b := consul.New(opts)
	t.Cleanup(func() { b.Close() })
	return b
}

func consulURL(addr string) string { return "consul://" + addr + "/x" }

// consulSession finds the session that holds .lock.
func consulSession(t *testing.T, c *api.Client, key string) string {
	t.Helper()
	p, _, err := c.KV().Get(key, nil)
	if err != nil || p == nil || p.Session == "" {
		t.Fatalf("nobody holds %s: %+v, %v", key, p, err)
	}
	return p.Session
}

// consulEnds are ways to end a hold against its holder's will. Each returns the exit code
// that is due, after the next holder has been there.
var consulEnds = map[string]func(l *leased, r *relay.Relay, s *consultest.Server) func() int{
	"server cut off": func(_ *leased, r *relay.Relay, _ *consultest.Server) func() int {
		r.Hole()
		return func() int { r.Pass(); return 76 } // and back: a late release would get through
	},
	"server cut off, and the way back": func(_ *leased, r *relay.Relay, _ *consultest.Server) func() int {
		r.HoldReplies()
		return func() int { return 76 }
	},
	"server gone": func(_ *leased, r *relay.Relay, _ *consultest.Server) func() int {
		r.Refuse()
		return func() int { return 76 }
	},
	"server stopped": func(l *leased, _ *relay.Relay, s *consultest.Server) func() int {
		s.Stop()
		l.code()
		s.Cont()
		return func() int { return 76 }
	},
	"dlock stopped": func(l *leased, _ *relay.Relay, _ *consultest.Server) func() int {
		l.signal(syscall.SIGSTOP)
		return func() int { l.signal(syscall.SIGCONT); return 76 }
	},
	"dlock killed": func(l *leased, _ *relay.Relay, _ *consultest.Server) func() int {
		l.signal(syscall.SIGKILL)
		return func() int { return 128 + 9 }
	},
	"session destroyed": func(l *leased, _ *relay.Relay, s *consultest.Server) func() int {
		if _, err := s.Client().Session().Destroy(consulSession(l.t, s.Client(), "x/j/.lock"), nil); err != nil {
			l.t.Error(err)
		}
		return func() int { return 76 }
	},
}

// TestConsulCommandIsDeadBeforeAnybodyElseHasTheLock: when a contender straight at the
// server gets the lock, no process of the command lives, and what dlock does later
// touches nobody.
func TestConsulCommandIsDeadBeforeAnybodyElseHasTheLock(t *testing.T) {
	t.Parallel()
	runs := 1
	if os.Getenv("DLOCK_FULL") != "" {
		runs = 100
	}
	slots := make(chan struct{}, 3) // several at once, but not all
	for what, end := range consulEnds {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := consultest.Start(t)
			for i := range runs {
				slots <- struct{}{}
				t.Run(strconv.Itoa(i), func(t *testing.T) { cutOffConsul(t, s, end) })
				<-slots
			}
		})
	}
}

func cutOffConsul(t *testing.T, s *consultest.Server, end func(*leased, *relay.Relay, *consultest.Server) func() int) {
	ttl := time.Second + rand.N(3*time.Second)
	r := relay.New(t, s.Addr())
	args, modes := []string{"run"}, []backend.Mode{backendtest.Exclusive, backendtest.Slots(2), backendtest.Shared}
	if rand.N(2) == 0 {
		args, modes = append(args, "--shared"), modes[:2]
	}
	mode := modes[rand.N(len(modes))]
	t.Logf("%v, then %v", args, mode)
	// A holder that had to wait itself knows who is next.
	b := consulLock(t, s)
	before := backendtest.MustAcquire(t, b, backendtest.Request("j", backendtest.Exclusive))
	l := startLeased(t, consulURL(r.Addr()), append(args, "--ttl", ttl.Round(time.Millisecond).String(), "--grace", "1", "j", "--", "sh", "-c", tree)...)
	l.await("its place in line", func() bool { return len(backendtest.InspectOne(t, b, "j").Waiters) == 1 })
	next := backendtest.Wait(t, consulLock(t, s), backendtest.Request("j", mode))
	backendtest.MustRelease(t, before)
	l.awaitStart()
	time.Sleep(rand.N(ttl))
	began := time.Now()
	code := end(l, r, s)
	h := next.Hold(t)
	if alive := l.alive(); len(alive) > 0 {
		t.Errorf("ttl %v: somebody else has the lock, and of the command live %v; stderr:\n%s", ttl, alive, l.said())
	}
	t.Logf("ttl %v: the next one got in after %v", ttl, time.Since(began))
	l.wantCode(code())
	if _, err := h.Renew(t.Context()); err != nil {
		t.Errorf("the next holder: %v", err)
	}
	backendtest.MustRelease(t, h)
}

// TestConsulGroupSurvivesItsMembers: whoever of several readers dies, the others keep a
// writer out, also one that is not dlock; and the settle of a reader whose session was
// destroyed is kept though another one leaves cleanly.
func TestConsulGroupSurvivesItsMembers(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	c := s.Client()
	shared := backendtest.Request("j", backendtest.Shared)
	shared.TTL, shared.Grace = 2*time.Second, 2*time.Second
	first := startLeased(t, consulURL(s.Addr()), "run", "--shared", "--ttl", "1s", "j", "--", "sh", "-c", tree)
	first.awaitStart()
	b := consulLock(t, s)
	second := backendtest.MustAcquire(t, b, shared)
	shared.Token = backendtest.Request("j", backendtest.Shared).Token
	third := backendtest.MustAcquire(t, b, shared)
	writer := backendtest.Wait(t, consulLock(t, s), backendtest.Request("j", backendtest.Exclusive))
	first.signal(syscall.SIGKILL)
	for range 12 { // far beyond the dead one's session
		for _, h := range []backend.Hold{second, third} {
			if _, err := h.Renew(t.Context()); err != nil {
				t.Fatalf("a survivor cannot renew: %v", err)
			}
		}
		writer.StillWaits(t)
		consulSession(t, c, "x/j/.lock")
		time.Sleep(500 * time.Millisecond)
	}
	entry, _, err := c.KV().Get("x.dlock/j/"+third.Grant().Token, nil)
	if err != nil || entry == nil {
		t.Fatalf("%+v, %v", entry, err)
	}
	if _, err := c.Session().Destroy(entry.Session, nil); err != nil {
		t.Fatal(err)
	}
	destroyed := time.Now()
	if err := backendtest.Receive(t, third.Lost(), "notice"); err == nil {
		t.Error("no loss")
	}
	t.Logf("noticed after %v", time.Since(destroyed))
	backendtest.MustRelease(t, second)
	backendtest.MustRelease(t, writer.Hold(t))
	if settled := time.Since(destroyed); settled < 3*time.Second {
		t.Errorf("the writer got in %v after a reader's session was destroyed, whose command has 3s to end", settled)
	}
}

// TestConsulElectionDisturbsNobody kills the leader of a cluster under a holder and a
// waiter.
func TestConsulElectionDisturbsNobody(t *testing.T) {
	t.Parallel()
	servers := consultest.Cluster(t)
	leader, others := consultest.Leader(t, servers)
	url := consulURL(others[0].Addr())
	l := startLeased(t, url, "run", "--ttl", "60s", "--grace", "1", "j", "--", "sh", "-c", until(0))
	l.awaitStart()
	b := consulLock(t, others[0])
	waiter := startLeased(t, url, "run", "-q", "--ttl", "60s", "j", "--", "touch", "started")
	waiter.await("its place in line", func() bool { return len(backendtest.InspectOne(t, b, "j").Waiters) == 1 })
	leader.Kill()
	killed := time.Now()
	l.await("another leader", func() bool {
		_, err := others[0].Client().KV().Put(&api.KVPair{Key: "probe"}, nil)
		return err == nil
	})
	t.Logf("no leader for %v", time.Since(killed))
	time.Sleep(3 * time.Second)
	l.write("go")
	l.wantCode(0)
	waiter.wantCode(0)
	if !waiter.exists("started") || l.said() != "" {
		t.Errorf("stderr of the holder:\n%s", l.said())
	}
}

// TestConsulReleaseIntoAHole: the exit code is the command's, and the end is told.
func TestConsulReleaseIntoAHole(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t)
	r := relay.New(t, s.Addr())
	l := startLeased(t, consulURL(r.Addr()), "run", "--ttl", "9s", "j", "--", "sh", "-c", until(7))
	l.awaitStart()
	r.Hole()
	l.write("go")
	l.wantCode(7)
	if said := l.said(); !strings.Contains(said, "not released, ends by itself in") {
		t.Errorf("stderr:\n%s", said)
	}
	r.Pass()
	l = startLeased(t, consulURL(r.Addr()), "run", "-w", "1m", "--ttl", "9s", "j", "--", "sh", "-c", until(7))
	l.awaitStart()
	r.Hole()
	l.write("go")
	time.Sleep(3 * time.Second)
	r.Pass()
	l.wantCode(7)
	if said := l.said(); strings.Contains(said, "not released") {
		t.Errorf("stderr:\n%s", said)
	}
	backendtest.MustRelease(t, backendtest.MustAcquire(t, consulLock(t, s), backendtest.NoWait(backendtest.Request("j", backendtest.Exclusive))))
}

// TestConsulThatDoesNotAnswerEndsTheWait: whether it waits or not, it says so in time.
func TestConsulThatDoesNotAnswerEndsTheWait(t *testing.T) {
	t.Parallel()
	silent, _ := silentListener(t)
	for what, addr := range map[string]string{"silent": silent, "closed": "127.0.0.1:1", "unresolvable": "nowhere.invalid:8500"} {
		for _, flag := range []string{"-w2", "-n"} {
			t.Run(what+" "+flag, func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				l := startLeased(t, consulURL(addr), "run", flag, "j", "--", "touch", "started")
				l.wantCode(69)
				t.Logf("%v: %s", time.Since(began).Round(time.Millisecond), l.said())
				if said := l.said(); strings.Count(said, "\n") > 2 || l.exists("started") {
					t.Errorf("stderr:\n%s", said)
				}
			})
		}
	}
}

// TestConsulTTLIsRaisedOnce: TTLs that the server does not have.
func TestConsulTTLIsRaisedOnce(t *testing.T) {
	t.Parallel()
	s := consultest.Start(t, `session_ttl_min = "10s"`)
	for _, ttl := range []string{"1s", "7500ms", "9999ms"} {
		l := startLeased(t, consulURL(s.Addr()), "run", "--ttl", ttl, "j", "--", "sh", "-c", until(0))
		l.awaitStart()
		st := backendtest.InspectOne(t, consulLock(t, s), "j")
		if len(st.Holders) != 1 || st.Holders[0].Left != 10*time.Second {
			t.Errorf("%s is shown as %+v", ttl, st.Holders)
		}
		l.write("go")
		l.wantCode(0)
		if said := l.said(); strings.Count(said, "10s") != 1 {
			t.Errorf("%s: stderr:\n%s", ttl, said)
		}
	}
}

// TestConsulUsers: an ACL token is shown nowhere, and one without rights gets exit code 77.
func TestConsulUsers(t *testing.T) {
	t.Parallel()
	const manager = "7f3a0c51-29f5-4c30-9e0b-aa11bb22cc33"
	s := consultest.StartSecured(t, manager)
	dir := t.TempDir()
	for user, url := range map[string]string{
		"manager": "consul://:" + manager + "@" + s.Addr() + "/y", "nobody": "consul://" + s.Addr() + "/y",
		"wrong": "consul://:00000000-29f5-4c30-9e0b-aa11bb22cc33@" + s.Addr() + "/y",
	} {
		if err := os.WriteFile(filepath.Join(dir, user), []byte(url), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		user, what string
		code       int
	}{
		{"manager", `-v run j -- sh -c 'tr "\0" "\n" </proc/$PPID/cmdline; env'`, 0},
		{"manager", "acquire --ttl 1h k", 0},
		{"manager", "run -n k -- true", 75},
		{"manager", "inspect --json -v", 0},
		{"nobody", "run -n j -- true", 77},
		{"nobody", "acquire new", 77},
		{"wrong", "run -n j -- true", 77},
		{"wrong", "inspect k", 77},
	} {
		c := exec.Command("sh", "-c", fmt.Sprintf("unset DLOCK_BACKEND; exec dlock --backend-file %s/%s %s", dir, step.user, step.what))
		out, _ := c.CombinedOutput()
		if got := c.ProcessState.ExitCode(); got != step.code || strings.Contains(string(out), "29f5-4c30") {
			t.Errorf("%s: dlock %s: exit code %d, want %d\n%s", step.user, step.what, got, step.code, out)
		}
	}
}

// TestConsulMemory: a waiter and a holder are small.
func TestConsulMemory(t *testing.T) {
	s := consultest.Start(t)
	b := consulLock(t, s)
	holder := startLeased(t, consulURL(s.Addr()), "run", "--ttl", "1s", "j", "--", "sh", "-c", until(0))
	holder.awaitStart()
	waiter := startLeased(t, consulURL(s.Addr()), "run", "-q", "--ttl", "1s", "j", "--", "true")
	waiter.await("its place in line", func() bool { return len(backendtest.InspectOne(t, b, "j").Waiters) == 1 })
	time.Sleep(2 * time.Second) // renewals
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

// TestConsulHandsOverInNoTime lets three shells run dlock again and again. A session that
// has ended keeps a key locked for the lock-delay, and clients that are not told wait for
// 5 s then; after a clean release there is nothing of that.
func TestConsulHandsOverInNoTime(t *testing.T) {
	t.Parallel()
	rounds := 7 // of each
	if os.Getenv("DLOCK_FULL") != "" {
		rounds = 334
	}
	dir, url, began := t.TempDir(), consultest.Start(t).URL()+"/x", time.Now()
	loop := fmt.Sprintf("for i in $(seq %d); do dlock -q -b %s run j -- sh -c 'echo x >>turns; sleep 0.1' || exit; done", rounds, url)
	var all sync.WaitGroup
	for range 3 {
		c := exec.Command("sh", "-c", loop)
		c.Dir = dir
		all.Go(func() {
			if out, err := c.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	all.Wait()
	turns, _ := os.ReadFile(filepath.Join(dir, "turns"))
	n := strings.Count(string(turns), "x")
	between := time.Since(began)/time.Duration(n) - 100*time.Millisecond
	t.Logf("%d turns, %v from one to the next", n, between)
	if n != 3*rounds || between > 3*time.Second {
		t.Errorf("%d turns, want %d; %v from one to the next", n, 3*rounds, between)
	}
}
