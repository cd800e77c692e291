package testscripts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/consul"
	"github.com/dlock/dlock/backend/file"
	"github.com/dlock/dlock/backend/mysql"
	"github.com/dlock/dlock/backend/redis"
	"github.com/dlock/dlock/backend/redlock"
	"github.com/dlock/dlock/backend/zookeeper"
)

// open opens a service as dlock does.
func open(t *testing.T, text string) backend.Backend {
	t.Helper()
	u, err := url.Parse(text)
	if servers, found := strings.CutPrefix(text, "redlock://"); found { // several, which net/url takes for a strange port
		hosts, path, _ := strings.Cut(servers, "/")
		u, err = &url.URL{Scheme: "redlock", Host: hosts, Path: "/" + path}, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var b backend.Backend
	switch u.Scheme {
	case "file":
		opts, err2 := file.ParseURL(u)
		b, err = file.New(opts), err2
	case "redis":
		opts, err2 := redis.ParseURL(u)
		opts.Namespace = "dlock"
		b, err = redis.New(opts), err2
	case "mysql":
		opts, err2 := mysql.ParseURL(u)
		opts.Namespace = "dlock"
		b, err = mysql.New(opts), err2
	case "redlock":
		opts, err2 := redlock.ParseURL(u)
		opts.Namespace = "dlock"
		b, err = redlock.New(opts), err2
	case "consul":
		opts, err2 := consul.ParseURL(u)
		b, err = consul.New(opts), err2
	case "zk":
		opts, err2 := zookeeper.ParseURL(u)
		b, err = zookeeper.New(opts), err2
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

// TestPrometheusReadsTheMetrics lets Prometheus' own parser read what we write.
func TestPrometheusReadsTheMetrics(t *testing.T) {
	t.Parallel()
	names := []string{"plain", `back\slash`, `"quoted"`, `{a="b"} 1 # \n`, "日本 🔒", `ends in \`}
	address := "file://" + filepath.Join(t.TempDir(), "locks")
	b := open(t, address)
	for _, name := range names {
		backendtest.MustAcquire(t, b, backendtest.Detached(backendtest.Request(name, backendtest.Exclusive), time.Hour))
	}
	program := filepath.Join(binDir, "promtext")
	build := exec.Command("go", "build", "-o", program, "./promtext")
	build.Dir = "peers"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building promtext: %v\n%s", err, out)
	}
	text, err := exec.Command("dlock", append([]string{"-b", address, "inspect", "--format", "prometheus", "free"}, names...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	parse := exec.Command(program)
	parse.Stdin, parse.Stderr = bytes.NewReader(text), os.Stderr
	parsed, err := parse.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var samples []struct {
		Metric string
		Labels map[string]string
		Value  float64
	}
	if err := json.Unmarshal(parsed, &samples); err != nil {
		t.Fatal(err)
	}
	held := map[string]float64{}
	count := map[string]int{}
	for _, s := range samples {
		count[s.Metric]++
		if s.Labels["service"] != address {
			t.Errorf("%+v: want the service %s", s, address)
		}
		if s.Metric == "dlock_lock_held" {
			held[s.Labels["name"]] = s.Value
		}
	}
	for _, name := range names {
		if held[name] != 1 {
			t.Errorf("%q is not held: %v", name, held)
		}
	}
	if v, found := held["free"]; !found || v != 0 {
		t.Errorf("a free lock is reported as %v, %v", v, found)
	}
	for metric, want := range map[string]int{
		"dlock_up": 1, "dlock_lock_holders": 7, "dlock_lock_age_seconds": 6, "dlock_lock_ttl_left_seconds": 6,
		"dlock_lock_waiters": 7, "dlock_lock_fence": 6, "dlock_lock_problems": 7,
	} {
		if count[metric] != want {
			t.Errorf("%d of %s, want %d", count[metric], metric, want)
		}
	}
}

// What --watch costs when much is going on.
const (
	watchedLocks   = 200
	watchedWaiters = 50
	looks          = 20
	// lookEvery is the default of --interval.
	lookEvery = 2 * time.Second
	// cpuShare is what a watch may take of one processor.
	cpuShare = 0.05
)

// TestWatchIsCheap counts the processor time of a watch, its start included. It makes
// the looks follow each other quickly, to be done sooner.
func TestWatchIsCheap(t *testing.T) {
	for _, s := range backends {
		if s.name == "mysql-optimistic" { // the same as mysql
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			address := s.start(t)(t.TempDir(), 1)
			crowd(t, open(t, address))
			var share float64
			for range 10 { // a busy machine only ever adds to it
				perLook := watchCPU(t, address)
				share = perLook.Seconds() / lookEvery.Seconds()
				t.Logf("%v a look, %.1f %% of a processor", perLook.Round(time.Microsecond), 100*share)
				if share <= cpuShare*raceFactor {
					return
				}
			}
			t.Errorf("a watch takes %.1f %% of a processor, want at most %.0f %%", 100*share, 100*cpuShare*raceFactor)
		})
	}
}

// crowd takes many locks, and waits for one of them many times.
func crowd(t *testing.T, b backend.Backend) {
	t.Helper()
	for i := range watchedLocks {
		backendtest.MustAcquire(t, b, backendtest.Detached(backendtest.Request(fmt.Sprintf("lock-%03d", i), backendtest.Exclusive), time.Hour))
	}
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		waiting.Wait()
	})
	for range watchedWaiters {
		waiting.Go(func() {
			req := backendtest.Request("lock-000", backendtest.Exclusive)
			req.TTL = time.Hour
			_, _ = b.Acquire(ctx, req) // until the test is over
		})
	}
	backendtest.Eventually(t, "all wait", func() bool { return len(backendtest.InspectOne(t, b, "lock-000").Waiters) == watchedWaiters })
}

// watchCPU watches in a terminal and returns the processor time of a look.
func watchCPU(t *testing.T, address string) time.Duration {
	t.Helper()
	cmd := exec.Command("dlock", "-b", address, "inspect", "--watch", "--interval", "0.1")
	cmd.Env = append(os.Environ(), "TERM=xterm")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: 80})
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	var seen strings.Builder
	buf := make([]byte, 1<<16)
	for strings.Count(seen.String(), "\x1b[H") < looks {
		n, err := tty.Read(buf)
		if err != nil {
			t.Fatalf("%v; it showed %q", err, seen.String())
		}
		seen.Write(buf[:n])
	}
	if !strings.Contains(seen.String(), fmt.Sprintf("held: %d, waiting: %d, problems: 0", watchedLocks, watchedWaiters)) {
		t.Errorf("it showed %q", seen.String()[:1000])
	}
	if _, err := tty.WriteString(ctrlC); err != nil {
		t.Fatal(err)
	}
	go func() { // what it still has to say
		for {
			if _, err := tty.Read(buf); err != nil {
				return
			}
		}
	}()
	_ = cmd.Wait() // interrupted
	return (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()) / looks
}
