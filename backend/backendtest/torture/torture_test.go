package torture_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/backend/backendtest/torture"
	"github.com/dlock/dlock/backend/file"
	"github.com/dlock/dlock/backend/redis"

	_ "github.com/dlock/dlock/cmd" // the program under test: its changes run these tests again
)

// services are what the harness runs over.
var services = []struct {
	name  string
	start func(t *testing.T) (torture.Service, []torture.Fault)
}{
	{"file", fileService},
	{"redis", redisService},
	{"redis-clock", steppedService},
	{"redis-sentinel", sentinelService},
	{"redlock", redlockService},
	{"zookeeper", zooKeeperService},
	{"consul", consulService},
	{"mysql", mysqlService("table")},
	{"mysql-optimistic", mysqlService("optimistic")},
	{"mysql-pessimistic", mysqlService("pessimistic")},
}

// TestTorture runs the harness over the services, for TORTURE_DURATION in all (a
// slice where it is not set), from TORTURE_SEED, or over TORTURE_BACKEND alone.
func TestTorture(t *testing.T) {
	duration, seed := time.Minute, uint64(time.Now().UnixNano())
	if d, err := time.ParseDuration(os.Getenv("TORTURE_DURATION")); err == nil {
		duration = d
	}
	if n, err := strconv.ParseUint(os.Getenv("TORTURE_SEED"), 10, 64); err == nil {
		seed = n
	}
	only, ran := os.Getenv("TORTURE_BACKEND"), 0
	for _, s := range services {
		if only == "" || only == s.name {
			ran++
		}
	}
	if ran == 0 {
		t.Fatalf("TORTURE_BACKEND %q is unknown", only)
	}
	table := []string{torture.Heading}
	for _, s := range services {
		if only != "" && only != s.name {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			service, faults := s.start(t)
			report := torture.Run(t, torture.Config{
				Service: service, Seed: seed, Duration: duration / time.Duration(ran),
				Processes: 6, Clients: 24, Locker: torture.Dlock(t), Faults: faults, Patience: 90 * time.Second,
			})
			table = append(table, report.Row())
			t.Log(report.Details())
			judge(t, report, duration/time.Duration(ran))
		})
	}
	t.Logf("\n%s", strings.Join(table, "\n"))
}

// judge fails the test for what must not be.
func judge(t *testing.T, r torture.Report, d time.Duration) {
	t.Helper()
	for _, f := range r.Findings() {
		t.Errorf("%s, seed %d: %s", r.Service, r.Seed, f)
	}
	if t.Failed() && r.Timeline != "" {
		t.Logf("timeline:\n%s", r.Timeline)
	}
	holds, kinds := 50, 8
	if d < 30*time.Second { // a slice, maybe on a slow machine
		holds, kinds = 5, 3
	}
	if r.Holds < holds || len(r.Faults) < kinds {
		t.Errorf("%d holds, %d kinds of fault: the run shows nothing", r.Holds, len(r.Faults))
	}
}

func fileService(t *testing.T) (torture.Service, []torture.Fault) {
	dir := filepath.Join(t.TempDir(), "locks")
	open := func(string) backend.Backend { return file.New(file.Options{Dir: dir}) }
	return torture.Service{
		Name: "file", URL: "file://" + dir, Ways: []string{"file://" + dir}, Open: open,
		Leftovers: func() []string {
			left := sweep(open(""))
			live, _ := filepath.Glob(filepath.Join(dir, "t.dlock", "live-*"))
			return append(left, live...)
		},
	}, torture.ProcessFaults()
}

// sweep takes the lock once more, since what killed ones left is cleared away by the
// next to come, and lists the holders and waiters that are shown after that.
func sweep(b backend.Backend) (left []string) {
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	h, err := b.Acquire(ctx, backendtest.Request("t", backendtest.Exclusive))
	if err == nil {
		err = h.Release(ctx, 0)
	}
	list, err2 := b.Inspect(ctx)
	if err := errors.Join(err, err2); err != nil {
		left = append(left, err.Error())
	}
	for _, s := range list {
		if len(s.Holders)+len(s.Waiters) > 0 {
			left = append(left, fmt.Sprintf("%+v", s))
		}
	}
	return left
}

func redisService(t *testing.T) (torture.Service, []torture.Fault) {
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	s := redisBehindRelays(t, "redis", server)
	s.Forgetful = func() {
		if err := server.Client().FlushAll(context.Background()).Err(); err != nil {
			t.Error(err)
		}
	}
	return s, slices.Concat(torture.ProcessFaults(), torture.NetworkFaults(), torture.ServerFaults(), []torture.Fault{torture.ForgetFault()})
}

// steppedService is a server whose clock is stepped. It keeps its data, since fences of
// one that loses them begin again at its clock.
func steppedService(t *testing.T) (torture.Service, []torture.Fault) {
	server, clock := redistest.StartWithClock(t, "--appendonly", "yes", "--appendfsync", "always")
	return redisBehindRelays(t, "redis-clock", server),
		slices.Concat(torture.ProcessFaults(), torture.NetworkFaults(), torture.ServerFaults(), torture.ClockFaults(clock.Set))
}

func redisBehindRelays(t *testing.T, name string, server *redistest.Server) torture.Service {
	s := torture.Service{Name: name, URL: server.URL(), Open: openRedis(t), Leases: true, Server: server}
	for range 3 {
		l := relay.New(t, server.Addr())
		s.Relays = append(s.Relays, l)
		s.Ways = append(s.Ways, "redis://"+l.Addr())
	}
	s.Leftovers = func() []string { return append(sweep(s.Open(s.URL)), redisLeftovers(server)...) }
	return s
}

// sentinelService is a master with one replica that has every write before it counts, and
// takes over again and again.
func sentinelService(t *testing.T) (torture.Service, []torture.Fault) {
	servers := redistest.Sentinels(t)
	address := "redis+sentinel://" + servers.SentinelAddrs()[0] + "/" + servers.Name + "?replicas=1"
	s := torture.Service{Name: "redis-sentinel", URL: address, Ways: []string{address}, Open: openRedis(t), Leases: true}
	s.Leftovers = func() []string { return sweep(s.Open(s.URL)) }
	sentinel := goredis.NewSentinelClient(&goredis.Options{Addr: servers.SentinelAddrs()[1]})
	t.Cleanup(func() { sentinel.Close() })
	failover := torture.OwnFault("failover", 8*time.Second, func() bool {
		return sentinel.Failover(context.Background(), servers.Name).Err() == nil
	})
	return s, append(torture.ProcessFaults(), failover)
}

func openRedis(t *testing.T) func(string) backend.Backend {
	return func(address string) backend.Backend {
		opts, err := redis.ParseURL(parse(t, address))
		if err != nil {
			t.Fatal(err)
		}
		opts.Namespace = "dlock"
		return redis.New(opts)
	}
}

// redisLeftovers lists the keys that are no memory of a lock, or have no end.
func redisLeftovers(server *redistest.Server) []string {
	ctx := context.Background()
	c := server.Client()
	keys, err := c.Keys(ctx, "*").Result()
	if err != nil {
		return []string{err.Error()}
	}
	var left []string
	for _, key := range keys {
		ttl := c.PTTL(ctx, key).Val()
		memory := strings.HasSuffix(key, ":m") || strings.HasSuffix(key, ":index") || strings.Contains(key, ":d:")
		if !memory || ttl < 0 {
			left = append(left, fmt.Sprintf("%s for %v", key, ttl))
		}
	}
	return left
}
