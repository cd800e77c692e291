//go:build linux

package testscripts

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock/dlock/backend/backendtest/relay"
)

// TestRedlockFarServers: five servers, each so far away that no majority answers in time for
// a lease of a second, and none that leaves anything of it: the command never starts.
func TestRedlockFarServers(t *testing.T) {
	t.Parallel()
	servers, _ := startFive(t)
	var relays []*relay.Relay
	var addrs []string
	for _, s := range servers {
		r := relay.New(t, s.Addr())
		relays, addrs = append(relays, r), append(addrs, r.Addr())
	}
	url := "redlock://" + strings.Join(addrs, ",")
	for _, away := range []time.Duration{350 * time.Millisecond, 175 * time.Millisecond, 125 * time.Millisecond} {
		for _, r := range relays {
			r.Delay(away)
		}
		for _, wait := range []string{"-n", "-w=2s"} {
			l := startLeased(t, url, "run", "--ttl=1s", wait, "j", "--", "touch", "started")
			l.wantCode(69)
			if l.exists("started") || !strings.HasPrefix(l.said(), "dlock: error: j: ") {
				t.Errorf("%v away, %s: started %v; stderr:\n%s", away, wait, l.exists("started"), l.said())
			}
		}
	}
	// Once they are near again the lock is free, and slow only after that means lost.
	for _, r := range relays {
		r.Pass()
	}
	l := startLeased(t, url, "run", "--ttl=1s", "-w=1m", "j", "--", "sh", "-c", "touch started; exec sleep 300")
	l.awaitStart()
	for _, r := range relays {
		r.Delay(350 * time.Millisecond)
	}
	l.wantCode(76)
	if list := l.alive(); len(list) != 0 {
		t.Errorf("processes of the command live: %v", list)
	}
}

// TestRedlockCutOff: three of five servers can be reached no more. The command is dead, all
// of it, before a contender that reaches them has the lock.
func TestRedlockCutOff(t *testing.T) {
	t.Parallel()
	for what, cut := range map[string]func(*relay.Relay){
		"silent": (*relay.Relay).Hole, "late": (*relay.Relay).HoldReplies, "gone": (*relay.Relay).Refuse,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			servers, straight := startFive(t)
			var relays []*relay.Relay
			var addrs []string
			for i, s := range servers {
				addr := s.Addr()
				if i < 3 {
					r := relay.New(t, addr)
					relays, addr = append(relays, r), r.Addr()
				}
				addrs = append(addrs, addr)
			}
			l := startLeased(t, "redlock://"+strings.Join(addrs, ","), "run", "--ttl=3s", "j", "--", "sh", "-c", tree)
			l.awaitStart()
			next := startLeased(t, "redlock://"+straight, "run", "--ttl=3s", "j", "--", "sh", "-c", until(0))
			next.await("a place in line", func() bool { return strings.Contains(next.said(), "waiting") })
			for _, r := range relays {
				cut(r)
			}
			next.awaitStart()
			if alive := l.alive(); len(alive) > 0 {
				t.Errorf("somebody else has the lock, and of the command live %v; stderr:\n%s", alive, l.said())
			}
			l.wantCode(76)
			next.write("go")
			next.wantCode(0)
		})
	}
}

// TestRedlockUnresolvableServers: two of five have names that nobody knows.
func TestRedlockUnresolvableServers(t *testing.T) {
	t.Parallel()
	servers, _ := startFive(t)
	addrs := []string{"one.invalid", "two.invalid"}
	for _, s := range servers[:3] {
		addrs = append(addrs, s.Addr())
	}
	l := startLeased(t, "redlock://"+strings.Join(addrs, ","), "run", "-n", "-v", "--ttl=5s", "j", "--", "sleep", "2")
	l.wantCode(0)
	for _, name := range addrs[:2] {
		if n := strings.Count(l.said(), "the host name "+name+" cannot be resolved"); n != 1 {
			t.Errorf("%s is named %d times; stderr:\n%s", name, n, l.said())
		}
	}
}

// TestRedlockDeadServers: two of five do not work; nothing is said of it but with -v, once.
func TestRedlockDeadServers(t *testing.T) {
	t.Parallel()
	servers, addrs := startFive(t)
	servers[0].Kill()
	servers[1].Stop()
	url := "redlock://" + addrs
	l := startLeased(t, url, "run", "--ttl=5s", "j", "--", "sleep", "3")
	l.wantCode(0)
	if l.said() != "" {
		t.Errorf("stderr: %s", l.said())
	}
	l = startLeased(t, url, "run", "-v", "--ttl=5s", "j", "--", "sleep", "5")
	l.wantCode(0)
	for _, s := range servers[:2] {
		if n := strings.Count(l.said(), "without one of the servers: redis://"+s.Addr()); n != 1 {
			t.Errorf("%s is named %d times; stderr:\n%s", s.Addr(), n, l.said())
		}
	}
	servers[2].Kill()
	l = startLeased(t, url, "run", "-n", "j", "--", "touch", "started")
	l.wantCode(69)
	if l.exists("started") {
		t.Errorf("without a majority the command started; stderr:\n%s", l.said())
	}
}
