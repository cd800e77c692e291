package zookeeper_test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/zktest"
	"github.com/dlock/dlock/backend/zookeeper"
)

// crowd is a number of waiters in line, each with a connection of its own.
type crowd struct {
	entered, left chan time.Time
	all           sync.WaitGroup
}

// newCrowd lets n waiters line up behind a hold, and stay in for hold each when their
// turn comes.
func newCrowd(t testing.TB, server *zktest.Server, n int, hold time.Duration) (*crowd, backend.Hold) {
	t.Helper()
	c := &crowd{entered: make(chan time.Time, n), left: make(chan time.Time, n)}
	address := server.URL() + "/x"
	h := backendtest.MustAcquire(t, dial(t, address), exclusive(30*time.Second))
	started := make(chan struct{}, n)
	for range n {
		b := dial(t, address)
		c.all.Go(func() { c.wait(t, b, hold, started) })
	}
	for range n {
		backendtest.Receive(t, started, "a place in line")
	}
	time.Sleep(time.Second) // the watches are set
	return c, h
}

func (c *crowd) wait(t testing.TB, b *zookeeper.Backend, hold time.Duration, started chan<- struct{}) {
	req := exclusive(30 * time.Second)
	req.Waiting = func(backend.Wait) error { started <- struct{}{}; return nil }
	h, err := b.Acquire(t.Context(), req)
	if err != nil {
		t.Error(err)
		return
	}
	c.entered <- time.Now()
	time.Sleep(hold)
	c.left <- time.Now()
	if err := h.Release(context.Background(), 0); err != nil {
		t.Error(err)
	}
}

// latencies are the times from each release to the next holder's entry.
func (c *crowd) latencies(first time.Time) []time.Duration {
	close(c.entered)
	close(c.left)
	var all []time.Duration
	for at := range c.entered {
		all = append(all, at.Sub(first))
		first = <-c.left
	}
	slices.Sort(all)
	return all
}

// BenchmarkHandOver lets waiters with connections of their own drain, each holding for
// 10 ms, and reports what a hand-over costs the server, how long it takes, and how
// many times the ideal time the whole line took.
func BenchmarkHandOver(b *testing.B) {
	const hold = 10 * time.Millisecond
	for _, n := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint("waiters=", n), func(b *testing.B) {
			for range b.N {
				server := zktest.Start(b)
				c, h := newCrowd(b, server, n, hold)
				before := server.Received()
				start := time.Now()
				if err := h.Release(context.Background(), 0); err != nil {
					b.Fatal(err)
				}
				c.all.Wait()
				took := time.Since(start)
				all := c.latencies(start)
				b.ReportMetric(float64(server.Received()-before)/float64(n), "requests/handover")
				b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
				b.ReportMetric(took.Seconds()/(time.Duration(n)*hold).Seconds(), "times-ideal")
			}
		})
	}
}

// TestHandOverCostsTheSameForAnyNumberOfWaiters counts requests.
func TestHandOverCostsTheSameForAnyNumberOfWaiters(t *testing.T) {
	const limit = 7 // five, and pings
	for _, n := range []int{5, 50} {
		server := zktest.Start(t)
		c, h := newCrowd(t, server, n, 0)
		before := server.Received()
		backendtest.MustRelease(t, h)
		c.all.Wait()
		each := float64(server.Received()-before) / float64(n)
		t.Logf("%d waiters: %.2f requests per hand-over", n, each)
		if each > limit {
			t.Errorf("%d waiters: %.2f requests per hand-over, want at most %d", n, each, limit)
		}
	}
}

// BenchmarkUncontended takes and releases a lock that nobody else wants.
func BenchmarkUncontended(b *testing.B) {
	server := zktest.Start(b)
	client := dial(b, server.URL()+"/x")
	for b.Loop() {
		h, err := client.Acquire(b.Context(), exclusive(30*time.Second))
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommands compares hand-overs between processes, 20 of them in a row, with
// those of flock(1).
func BenchmarkCommands(b *testing.B) {
	dir := b.TempDir()
	dlock := filepath.Join(dir, "dlock")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dlock, "../..")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	server := zktest.Start(b)
	for what, argv := range map[string][]string{
		"dlock": {dlock, "-b", server.URL() + "/x", "run", "-q", "j", "--", "true"},
		"flock": {"flock", filepath.Join(dir, "lock"), "true"},
	} {
		b.Run(what, func(b *testing.B) {
			const waiters = 20
			for range b.N {
				gate := exec.Command(argv[0], append(slices.Clone(argv[1:len(argv)-1]), "sh", "-c", "sleep 2")...)
				if err := gate.Start(); err != nil {
					b.Fatal(err)
				}
				time.Sleep(300 * time.Millisecond)
				var all sync.WaitGroup
				for range waiters {
					all.Go(func() {
						if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
							b.Errorf("%v\n%s", err, out)
						}
					})
				}
				if err := gate.Wait(); err != nil {
					b.Fatal(err)
				}
				begun := time.Now()
				all.Wait()
				b.ReportMetric(float64(time.Since(begun).Microseconds())/1000/waiters, "ms/handover")
			}
		})
	}
}
