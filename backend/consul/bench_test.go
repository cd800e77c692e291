package consul_test

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
	"github.com/dlock/dlock/backend/backendtest/consultest"
	"github.com/dlock/dlock/backend/consul"
)

// crowd is a number of waiters in line, each with connections of its own.
type crowd struct {
	entered, left chan time.Time
	all           sync.WaitGroup
}

// newCrowd lets n waiters line up behind a hold, and stay in for hold each when their
// turn comes.
func newCrowd(t testing.TB, url string, n int, hold time.Duration) (*crowd, backend.Hold) {
	t.Helper()
	c := &crowd{entered: make(chan time.Time, n), left: make(chan time.Time, n)}
	first := open(t, url, "")
	t.Cleanup(func() { first.Close() })
	h := backendtest.MustAcquire(t, first, backendtest.Request("j", backendtest.Exclusive))
	started := make(chan struct{}, n)
	for range n {
		b := open(t, url, "")
		t.Cleanup(func() { b.Close() })
		c.all.Go(func() { c.wait(t, b, hold, started) })
	}
	for range n {
		backendtest.Receive(t, started, "a place in line")
	}
	time.Sleep(time.Second) // the queries are on their way
	return c, h
}

func (c *crowd) wait(t testing.TB, b *consul.Backend, hold time.Duration, started chan<- struct{}) {
	req := backendtest.Request("j", backendtest.Exclusive)
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

// BenchmarkHandOver lets waiters drain, each holding for 10 ms, and reports how long a
// hand-over takes, and how many times the ideal time the whole line took.
func BenchmarkHandOver(b *testing.B) {
	const hold = 10 * time.Millisecond
	for _, n := range []int{1, 10, 100} {
		b.Run(fmt.Sprint("waiters=", n), func(b *testing.B) {
			for range b.N {
				c, h := newCrowd(b, consultest.Start(b).URL()+"/x", n, hold)
				start := time.Now()
				if err := h.Release(context.Background(), 0); err != nil {
					b.Fatal(err)
				}
				c.all.Wait()
				took := time.Since(start)
				all := c.latencies(start)
				b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
				b.ReportMetric(took.Seconds()/(time.Duration(n)*hold).Seconds(), "times-ideal")
			}
		})
	}
}

// TestHandOverCostsTheSameForAnyNumberOfWaiters counts requests: those of the release,
// the one that wakes, the one that takes, and the end of a blocking query now and then.
func TestHandOverCostsTheSameForAnyNumberOfWaiters(t *testing.T) {
	const limit = 5
	server := consultest.Start(t)
	for _, n := range []int{5, 50} {
		counter := consultest.Count(t, server)
		c, h := newCrowd(t, fmt.Sprintf("%s/%d", counter.URL, n), n, 0)
		before := counter.Requests()
		backendtest.MustRelease(t, h)
		c.all.Wait()
		each := float64(counter.Requests()-before) / float64(n)
		t.Logf("%d waiters: %.2f requests per hand-over", n, each)
		if each > limit {
			t.Errorf("%d waiters: %.2f requests per hand-over, want at most %d", n, each, limit)
		}
	}
}

// TestConnectionsPerWaiter lets as many wait as Consul's own limit leaves room for.
func TestConnectionsPerWaiter(t *testing.T) {
	const waiters = 180
	server := consultest.Start(t, "limits { http_max_conns_per_client = 200 }")
	c, h := newCrowd(t, server.URL()+"/x", waiters, 0)
	backendtest.MustRelease(t, h)
	c.all.Wait()
}

// BenchmarkUncontended takes and releases a lock that nobody else wants.
func BenchmarkUncontended(b *testing.B) {
	client := open(b, consultest.Start(b).URL(), "x")
	for b.Loop() {
		h, err := client.Acquire(b.Context(), backendtest.Request("j", backendtest.Exclusive))
		if err != nil {
			b.Fatal(err)
		}
		if err := h.Release(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCommands compares dlock with `consul lock`: one run of true, and hand-overs
// between processes.
func BenchmarkCommands(b *testing.B) {
	dlock := filepath.Join(b.TempDir(), "dlock")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dlock, "../..")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	server := consultest.Start(b)
	for what, argv := range map[string][]string{
		"dlock":  {dlock, "-b", server.URL() + "/x", "run", "-q", "j", "--"},
		"consul": {consultest.Program(b), "lock", "-shell=false", "-http-addr=" + server.Addr(), "x/j"},
	} {
		run := func(args ...string) *exec.Cmd {
			return exec.Command(argv[0], append(slices.Clone(argv[1:]), args...)...)
		}
		b.Run(what+"/alone", func(b *testing.B) {
			for b.Loop() {
				if out, err := run("true").CombinedOutput(); err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
			}
		})
		b.Run(what+"/line", func(b *testing.B) {
			const waiters = 10
			for range b.N {
				gate := run("sleep", "4")
				if err := gate.Start(); err != nil {
					b.Fatal(err)
				}
				time.Sleep(time.Second)
				var all sync.WaitGroup
				for range waiters {
					all.Go(func() {
						if out, err := run("true").CombinedOutput(); err != nil {
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

// TestRequestsAreCounted: a session, the lock, its end and the session's are four writes.
func TestRequestsAreCounted(t *testing.T) {
	b := open(t, consultest.Start(t).URL(), "")
	t.Cleanup(func() { b.Close() })
	count := func() uint64 {
		n, err := b.Requests(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := count()
	for range 10 {
		backendtest.MustRelease(t, backendtest.MustAcquire(t, b, backendtest.Request("j", backendtest.Exclusive)))
	}
	if wrote := count() - before; wrote < 40 || wrote > 50 { // the agent has some of its own
		t.Errorf("%d writes, want 4 a turn", wrote)
	}
}
