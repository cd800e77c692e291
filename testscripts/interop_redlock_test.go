package testscripts

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend/backendtest/redistest"
)

// startFive starts five servers; what makes them one service is the list of them.
func startFive(t *testing.T) (servers []*redistest.Server, addrs string) {
	t.Helper()
	var list []string
	for range 5 {
		s := redistest.Start(t)
		servers, list = append(servers, s), append(list, s.Addr())
	}
	return servers, strings.Join(list, ",")
}

// redlockPeer is redsync, which has the key on a majority of several servers.
func redlockPeer(t *testing.T) redisPeer {
	t.Helper()
	peers := redisPeers(t)
	return peers[slices.IndexFunc(peers, func(p redisPeer) bool { return p.kind == "redsync" })]
}

// TestRedlockPeer lets dlock and redsync have the same key on the same five servers, step
// by step.
func TestRedlockPeer(t *testing.T) {
	t.Parallel()
	servers, addrs := startFive(t)
	p, dir, key := redlockPeer(t), t.TempDir(), "job"
	dlock := func(args ...string) *exec.Cmd { return dlockPlain(dir, "redlock://"+addrs, args...) }
	peer := func(mode string) *exec.Cmd { return p.command(dir, addrs, key, mode) }
	forget := func() { // as the end of a lease does it
		for _, s := range servers {
			if err := s.Client().Del(t.Context(), key).Err(); err != nil {
				t.Error(err)
			}
		}
	}

	for _, mode := range [][]string{{}, {"--shared"}, {"--slots=2"}} {
		release := hold(t, dlock(append(append([]string{"run", "-n"}, mode...), key, "--", "sh", "-c", "echo held; cat")...))
		wantExit(t, peer("try"), 75)
		release(0)
		wantExit(t, peer("try"), 0)
	}
	wantExit(t, dlock("run", "-n", "--min-hold=1m", key, "--", "true"), 0)
	wantExit(t, peer("try"), 75)
	forget()

	release := hold(t, peer("hold"))
	for _, mode := range []string{"--no-wait", "--no-wait --shared", "--no-wait --slots=2"} {
		run := append(append([]string{"run"}, strings.Fields(mode)...), key, "--", "true")
		if said := wantExit(t, dlock(run...), 75); !strings.Contains(said, "not dlock") {
			t.Errorf("%s tells nothing of the holder: %s", mode, said)
		}
	}
	wantForeign(t, wantExit(t, dlock("inspect", "--json", key), 0))
	wantExit(t, dlock("release", key, uuid.NewString()), 76)
	release(0)

	release = hold(t, peer("hold"))
	forget()
	token := strings.TrimSpace(wantExit(t, dlock("acquire", "-n", key), 0))
	release(76)
	var ours []string // a slow server may not have it
	for _, s := range servers {
		if got := s.Client().Get(t.Context(), key).Val(); got != "" {
			ours = append(ours, got)
		}
	}
	if len(ours) <= len(servers)/2 || slices.ContainsFunc(ours, func(got string) bool { return got != token }) {
		t.Errorf("after a peer released what it had no more, the keys are %q, want %q on a majority", ours, token)
	}
	wantExit(t, dlock("release", key, token), 0)
	wantExit(t, peer("try"), 0)
}

// TestRedlockPeersContend lets dlock and redsync have one lock again and again, while one of
// the five servers stops and goes on.
func TestRedlockPeersContend(t *testing.T) {
	t.Parallel()
	const key, contenders = "job", 3
	servers, addrs := startFive(t)
	p, dir, length := redlockPeer(t), t.TempDir(), 8*time.Second
	if os.Getenv("DLOCK_FULL") != "" {
		length = 60 * time.Second
	}
	if err := os.WriteFile(filepath.Join(dir, "section"), []byte(section), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := filepath.Join(dir, "stop")
	counts := map[string]string{"dlock": "sections", p.kind: p.kind}
	var all sync.WaitGroup
	for range contenders {
		all.Go(func() {
			for !exists(stop) && !t.Failed() {
				wantExit(t, dlockPlain(dir, "redlock://"+addrs, "run", key, "--", "sh", "section"), 0)
			}
		})
		all.Go(func() { wantExit(t, p.command(dir, addrs, key, "contend"), 0) })
	}
	began := time.Now()
	for time.Since(began) < length {
		servers[0].Stop()
		time.Sleep(length / 8)
		servers[0].Cont()
		time.Sleep(length / 16)
	}
	for starved(dir, counts) != "" && time.Since(began) < length+patience {
		time.Sleep(100 * time.Millisecond)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: %d times", kind, lines(dir, counts[kind]))
	}
	if kinds := starved(dir, counts); kinds != "" {
		t.Errorf("starved:%s", kinds)
	}
	if faults, err := os.ReadFile(filepath.Join(dir, "faults")); err == nil {
		t.Errorf("faults:\n%s", faults)
	}
}
