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

// TestRedlockDeadServers: two of five do not work; nothing is said of it but with -v, once.
func TestRedlockDeadServers(t *testing.T) {
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
	began := time.Now()
	l = startLeased(t, url, "run", "-n", "j", "--", "touch", "started")
	l.wantCode(69)
	if took := time.Since(began); l.exists("started") || took > 10*time.Second {
		t.Errorf("without a majority: started %v, after %v; stderr:\n%s", l.exists("started"), took, l.said())
	}
}
