package testscripts

import (
	"encoding/json"
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

	"github.com/dlock/dlock/backend/backendtest/daemon"
	"github.com/dlock/dlock/backend/backendtest/zktest"
)

// zkPeer is a program of peers/zk that takes locks on ZooKeeper by other means than dlock.
type zkPeer struct {
	kind      string // also the file in which it counts what it got
	processes int    // that contend
	argv      []string
}

func (p zkPeer) command(dir, addr, path, mode string) *exec.Cmd {
	argv := append(p.argv[1:len(p.argv):len(p.argv)], addr, path, mode)
	c := exec.Command(p.argv[0], argv...)
	c.Dir = dir
	return c
}

// zkPeers compiles what has to be compiled of them.
func zkPeers(t *testing.T) map[string]zkPeer {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("peers", "zk"))
	if err != nil {
		t.Fatal(err)
	}
	const jars = "/usr/share/java/"
	classes := []string{binDir}
	for _, jar := range []string{"curator-recipes", "curator-framework", "curator-client", "zookeeper", "zookeeper-jute", "guava", "slf4j-api", "slf4j-nop"} {
		classes = append(classes, jars+jar+".jar")
	}
	path := strings.Join(classes, ":")
	javac := exec.Command(daemon.Find(t, "javac", "apt-get install default-jdk-headless libcurator-recipes-java"), "-d", binDir, "-cp", path, filepath.Join(dir, "ZkPeer.java"))
	if out, err := javac.CombinedOutput(); err != nil {
		t.Fatalf("compiling the peer: %v\n%s", err, out)
	}
	java := func(kind string) []string {
		return []string{"java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, "ZkPeer", kind}
	}
	return map[string]zkPeer{
		"mutex": {kind: "curator-mutex", processes: 1, argv: java("mutex")},
		"kazoo": {kind: "kazoo", processes: 3, argv: []string{filepath.Join(dir, "zkpeer.py")}},
		"read":  {kind: "curator-read", processes: 1, argv: java("read")},
		"write": {kind: "curator-write", processes: 1, argv: java("write")},
	}
}

// zkPlace is a place on a server where dlock and peers meet.
type zkPlace struct {
	*zktest.Server
	dir, chroot, query string
}

func (z zkPlace) dlock(args ...string) *exec.Cmd {
	return dlock(z.dir, z.URL()+z.chroot+z.query, args...)
}
func (z zkPlace) peer(p zkPeer, name, mode string) *exec.Cmd {
	return p.command(z.dir, z.Addr(), z.chroot+"/"+name, mode)
}

// TestZooKeeperPeers lets dlock, and what people use for locks on ZooKeeper, have the
// same lock: first step by step, then all at once.
func TestZooKeeperPeers(t *testing.T) {
	t.Parallel()
	server, peers := zktest.Start(t), zkPeers(t)
	for _, name := range []string{"mutex", "kazoo"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testZkMutex(t, zkPlace{server, t.TempDir(), "/jobs/" + name, ""}, peers[name])
		})
	}
	t.Run("read-write", func(t *testing.T) {
		t.Parallel()
		testZkReadWrite(t, zkPlace{server, t.TempDir(), "/rw", "?recipe=rwlock"}, peers["read"], peers["write"])
	})
}

// testZkMutex lets dlock and a program for which every hold is exclusive meet in each way.
func testZkMutex(t *testing.T, z zkPlace, p zkPeer) {
	for _, mode := range [][]string{{}, {"--shared"}, {"--slots=2"}} {
		release := hold(t, z.dlock(append(append([]string{"run", "-n"}, mode...), "j", "--", "sh", "-c", "echo held; cat")...))
		wantExit(t, z.peer(p, "j", "try"), 75)
		release(0)
	}
	wantExit(t, z.peer(p, "j", "try"), 0)
	token := strings.TrimSpace(wantExit(t, z.dlock("acquire", "-n", "--ttl=1h", "j"), 0))
	wantExit(t, z.peer(p, "j", "try"), 75)
	wantExit(t, z.dlock("release", "j", token), 0)
	wantExit(t, z.dlock("run", "-n", "--min-hold=1h", "k", "--", "true"), 0)
	wantExit(t, z.peer(p, "k", "try"), 75)

	release := hold(t, z.peer(p, "j", "hold"))
	for _, mode := range []string{"--no-wait", "--no-wait --shared", "--no-wait --slots=2"} {
		run := append(append([]string{"run"}, strings.Fields(mode)...), "j", "--", "true")
		if said := wantExit(t, z.dlock(run...), 75); !strings.Contains(said, "not dlock") {
			t.Errorf("%s tells nothing of the holder: %s", mode, said)
		}
	}
	wantOneForeign(t, wantExit(t, z.dlock("inspect", "--json", "j"), 0))
	wantExit(t, z.dlock("release", "j", uuid.NewString()), 76)
	wantExit(t, z.dlock("release", "--force", "--yes", "j", "ffffff"), 64)
	release(0)
	crashZk(t, z, p)
	contendZk(t, z, map[string][]string{"dlock": {"run", "c", "--", "sh", "peersection", "dlock", "-x"}}, p)
}

// testZkReadWrite lets dlock and Curator's InterProcessReadWriteLock meet in each way.
func testZkReadWrite(t *testing.T, z zkPlace, read, write zkPeer) {
	held := func(mode ...string) []string {
		return append(append([]string{"run", "-n"}, mode...), "j", "--", "sh", "-c", "echo held; cat")
	}
	release := hold(t, z.dlock(held()...))
	wantExit(t, z.peer(read, "j", "try"), 75)
	wantExit(t, z.peer(write, "j", "try"), 75)
	release(0)
	release = hold(t, z.dlock(held("--shared")...))
	wantExit(t, z.peer(read, "j", "try"), 0)
	wantExit(t, z.peer(write, "j", "try"), 75)
	release(0)
	release = hold(t, z.peer(read, "j", "hold"))
	wantExit(t, z.dlock("run", "-n", "--shared", "j", "true"), 0)
	wantExit(t, z.dlock("run", "-n", "j", "true"), 75)
	wantExit(t, z.dlock("run", "-n", "--slots=2", "j", "true"), 75)
	z.query = "" // a contender of the other recipe, which would not exclude it
	if said := wantExit(t, z.dlock("run", "-n", "j", "true"), 64); !strings.Contains(said, "recipe=rwlock") {
		t.Errorf("the hint is missing: %s", said)
	}
	z.query = "?recipe=rwlock"
	release(0)
	release = hold(t, z.peer(write, "j", "hold"))
	wantExit(t, z.dlock("run", "-n", "--shared", "j", "true"), 75)
	wantExit(t, z.dlock("run", "-n", "j", "true"), 75)
	release(0)
	crashZk(t, z, write)
	contendZk(t, z, map[string][]string{
		"dlock-write": {"run", "c", "--", "sh", "peersection", "dlock-write", "-x"},
		"dlock-read":  {"run", "--shared", "c", "--", "sh", "peersection", "dlock-read", "-s"},
	}, read, write)
}

// crashZk kills a holder of either side, and lets the other one get in.
func crashZk(t *testing.T, z zkPlace, p zkPeer) {
	t.Helper()
	c := z.peer(p, "j", "hold")
	release := hold(t, c)
	kill9(t, c)
	wantExit(t, z.dlock("run", "-w", "1m", "j", "--", "true"), 0)
	release(-1)
	c = z.dlock("run", "--ttl=2s", "j", "--", "sh", "-c", "echo held; cat")
	release = hold(t, c)
	kill9(t, c)
	wantExit(t, z.peer(p, "j", "take"), 0)
	release(-1)
}

func kill9(t *testing.T, c *exec.Cmd) {
	t.Helper()
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// peerSection is the critical section of a contender of that kind, which checks for
// overlap by a kernel lock, shared or exclusive as it has the lock under test.
const peerSection = `
exec 9>>guard
flock -n $2 9 || echo "overlap: $1" >>faults
echo x >>$1
sleep 0.005
`

// contendZk lets dlocks and peers have one lock again and again: for some seconds, and
// until each kind has had it often enough.
func contendZk(t *testing.T, z zkPlace, dlocks map[string][]string, peers ...zkPeer) {
	t.Helper()
	length := 5 * time.Second
	if os.Getenv("DLOCK_FULL") != "" {
		length = 30 * time.Second
	}
	if err := os.WriteFile(filepath.Join(z.dir, "peersection"), []byte(peerSection), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := filepath.Join(z.dir, "stop")
	counts := map[string]string{}
	var all sync.WaitGroup
	for kind, args := range dlocks {
		counts[kind] = kind
		for range 3 {
			all.Go(func() {
				for !exists(stop) && !t.Failed() {
					wantExit(t, z.dlock(args...), 0)
				}
			})
		}
	}
	for _, p := range peers {
		counts[p.kind] = p.kind
		for range p.processes {
			all.Go(func() { wantExit(t, z.peer(p, "c", "contend"), 0) })
		}
	}
	began := time.Now()
	for time.Since(began) < length || starved(z.dir, counts) != "" && time.Since(began) < length+patience {
		time.Sleep(100 * time.Millisecond)
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all.Wait()
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		t.Logf("%s: %d times", kind, lines(z.dir, counts[kind]))
	}
	if kinds := starved(z.dir, counts); kinds != "" {
		t.Errorf("starved:%s", kinds)
	}
	if faults, err := os.ReadFile(filepath.Join(z.dir, "faults")); err == nil {
		t.Errorf("faults:\n%s", faults)
	}
	wantExit(t, z.dlock("run", "-n", "c", "--", "true"), 0)
}

// wantOneForeign wants that dlock inspect shows one holder who is not dlock.
func wantOneForeign(t *testing.T, text string) {
	t.Helper()
	var report struct {
		Locks []struct {
			Holders []struct{ Owner struct{ Kind string } }
		}
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if len(report.Locks) != 1 || len(report.Locks[0].Holders) != 1 || report.Locks[0].Holders[0].Owner.Kind != "foreign" {
		t.Errorf("not one foreign holder: %s", text)
	}
}
