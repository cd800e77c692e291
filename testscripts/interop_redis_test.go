package testscripts

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
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
	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend/backendtest/redistest"
)

// redisPeer is a program of peers/ that takes locks on Redis by other means than dlock.
type redisPeer struct {
	kind       string // also the file in which it counts what it got
	contenders int
	argv       []string
}

// redisPeers builds what has to be built of them.
func redisPeers(t *testing.T) []redisPeer {
	t.Helper()
	dir, err := filepath.Abs("peers")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "peer")
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the peers: %v\n%s", err, out)
	}
	return []redisPeer{
		{"redsync", 4, []string{program, "redsync"}},
		{"redislock", 4, []string{program, "redislock"}},
		{"redis-py", 4, []string{filepath.Join(dir, "peer.py")}},
		{"redis-cli", 1, []string{filepath.Join(dir, "peer.sh")}},
	}
}

// command is a command line of the peer; peers/main.go says what the modes do.
func (p redisPeer) command(dir, addr, key, mode string) *exec.Cmd {
	argv := append(p.argv[1:len(p.argv):len(p.argv)], addr, key, mode)
	c := exec.Command(p.argv[0], argv...)
	c.Dir = dir
	return c
}

// TestRedisPeers lets dlock and what people use for locks on Redis have the same key.
func TestRedisPeers(t *testing.T) {
	t.Parallel()
	server, peers := redistest.Start(t), redisPeers(t)
	for _, p := range peers {
		t.Run(p.kind, func(t *testing.T) { testRedisPeer(t, server, p) })
	}
	t.Run("contention", func(t *testing.T) { testRedisPeersContend(t, server, peers) })
	noSideKeyStays(t, server.Client())
}

// testRedisPeer lets dlock and one peer meet in each way, step by step.
func testRedisPeer(t *testing.T, server *redistest.Server, p redisPeer) {
	dir, client, key := t.TempDir(), server.Client(), "job:"+p.kind
	dlock := func(args ...string) *exec.Cmd { return dlockPlain(dir, server.URL(), args...) }
	peer := func(mode string) *exec.Cmd { return p.command(dir, server.Addr(), key, mode) }
	forget := func() { // as the end of a lease does it
		if n, err := client.Del(t.Context(), key).Result(); n != 1 || err != nil {
			t.Errorf("deleted %d keys: %v", n, err)
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
		if said := wantExit(t, dlock(run...), 75); !strings.Contains(said, "not dlock") || !strings.Contains(said, " left") {
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
	if got := client.Get(t.Context(), key).Val(); got != token {
		t.Errorf("after a peer released what it had no more, the key is %q, want %q", got, token)
	}
	forget()
	release = hold(t, peer("hold"))
	wantExit(t, dlock("release", key, token), 76)
	release(0)
}

// wantForeign wants that dlock inspect shows one holder who is not dlock, and an end.
func wantForeign(t *testing.T, text string) {
	t.Helper()
	var report struct {
		Locks []struct {
			Holders []struct {
				Owner struct{ Kind string }
				Left  float64 `json:"left_seconds"`
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if len(report.Locks) == 1 && len(report.Locks[0].Holders) == 1 {
		if h := report.Locks[0].Holders[0]; h.Owner.Kind == "foreign" && h.Left > 0 && h.Left <= 10 {
			return
		}
	}
	t.Errorf("no foreign holder whose lease ends in 10 seconds: %s", text)
}

// enough is how often a kind of contender must get the lock.
const enough = 5

// testRedisPeersContend lets all have one lock again and again: for some seconds, and
// until each kind has had it often enough.
func testRedisPeersContend(t *testing.T, server *redistest.Server, peers []redisPeer) {
	const key = "job"
	dir, length := t.TempDir(), 6*time.Second
	if os.Getenv("DLOCK_FULL") != "" {
		length = 30 * time.Second
	}
	if err := os.WriteFile(filepath.Join(dir, "section"), []byte(section), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := filepath.Join(dir, "stop")
	counts := map[string]string{"dlock": "sections"} // by kind, the file that has a line for each section
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for !exists(stop) && !t.Failed() {
				wantExit(t, dlockPlain(dir, server.URL(), "run", key, "--", "sh", "section"), 0)
			}
		})
	}
	// The peers come when dlock has a line, which passes the lock on in no time.
	for began := time.Now(); lines(dir, counts["dlock"]) < enough && time.Since(began) < patience; {
		time.Sleep(10 * time.Millisecond)
	}
	for _, p := range peers {
		counts[p.kind] = p.kind
		for range p.contenders {
			all.Go(func() { wantExit(t, p.command(dir, server.Addr(), key, "contend"), 0) })
		}
	}
	began := time.Now()
	time.Sleep(length)
	for starved(dir, counts) != "" && time.Since(began) < length+5*patience {
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
	if token, err := server.Client().Get(t.Context(), key).Result(); !errors.Is(err, redis.Nil) {
		t.Errorf("the lock is not free at the end: %q, %v", token, err)
	}
}

// starved lists the kinds that had the lock less than often enough.
func starved(dir string, counts map[string]string) (kinds string) {
	for kind, file := range counts {
		if lines(dir, file) < enough {
			kinds += " " + kind
		}
	}
	return kinds
}

func lines(dir, file string) int {
	text, _ := os.ReadFile(filepath.Join(dir, file))
	return strings.Count(string(text), "\n")
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// noSideKeyStays wants that all that dlock left on the server ends by itself.
func noSideKeyStays(t *testing.T, client *redis.Client) {
	t.Helper()
	found := 0
	keys := client.Scan(t.Context(), 0, "*", 0).Iterator()
	for ; keys.Next(t.Context()); found++ {
		if left, err := client.PTTL(t.Context(), keys.Val()).Result(); left <= 0 {
			t.Errorf("%s has no end: %v, %v", keys.Val(), left, err)
		}
	}
	if err := keys.Err(); err != nil || found == 0 {
		t.Errorf("%d keys: %v", found, err)
	}
}

// dlockPlain is dlock with keys that are the plain name, as peers know them.
func dlockPlain(dir, url string, args ...string) *exec.Cmd {
	return dlock(dir, url, append([]string{"--namespace", ""}, args...)...)
}

// hold starts a command that says "held" when it has the lock, and keeps it until its
// stdin ends. The function returned ends it, and wants that exit code.
func hold(t *testing.T, c *exec.Cmd) func(code int) {
	t.Helper()
	var said strings.Builder
	c.Stderr = &said
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	end := func() error {
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		return c.Wait()
	}
	if line != "held\n" {
		t.Fatalf("%v does not hold the lock: %q, %v, %v\n%s", c.Args, line, err, end(), &said)
	}
	return func(code int) {
		t.Helper()
		if err := end(); exitCode(err) != code {
			t.Errorf("%v: %v, want exit code %d\n%s", c.Args, err, code, &said)
		}
	}
}

// wantExit runs a command that must exit with that code, and returns what it said: its
// output, and where that is empty its errors.
func wantExit(t *testing.T, c *exec.Cmd, code int) string {
	t.Helper()
	var out, said strings.Builder
	c.Stdout, c.Stderr = &out, &said
	if err := c.Run(); exitCode(err) != code {
		t.Errorf("%v: %v, want exit code %d\n%s%s", c.Args, err, code, &out, &said)
	}
	if out.Len() > 0 {
		return out.String()
	}
	return said.String()
}

// exitCode is the code of a command that ended so; -1 if it did not even run.
func exitCode(err error) int {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}
