package redis_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/redis"
)

// fromClients are the commands that only clients send; all others in a server's
// statistics came from scripts.
var fromClients = []string{"hello", "evalsha", "eval", "subscribe", "info", "config|resetstat", "client|setinfo"}

// calls counts the commands that a server has run for clients, and inside scripts.
func calls(t testing.TB, s *redistest.Server) (wire, inside int) {
	t.Helper()
	info, err := s.Client().Info(context.Background(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if !ok {
			continue
		}
		count, _, _ := strings.Cut(rest, ",")
		n, err := strconv.Atoi(count)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(fromClients, name) {
			wire += n
		} else {
			inside += n
		}
	}
	return wire, inside
}

// crowd is a number of waiters in line, each with connections of its own.
type crowd struct {
	address string
	entered chan time.Time
	left    chan time.Time
	all     sync.WaitGroup
}

// newCrowd lets n waiters line up behind a hold, and stay in for hold each when their
// turn comes.
func newCrowd(t testing.TB, server *redistest.Server, n int, hold time.Duration) (*crowd, backend.Hold) {
	t.Helper()
	c := &crowd{address: server.URL(), entered: make(chan time.Time, n), left: make(chan time.Time, n)}
	first := open(t, c.address, "dlock")
	t.Cleanup(func() { first.Close() })
	h, err := first.Acquire(t.Context(), backendtest.Request("j", backendtest.Exclusive))
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		b := open(t, c.address, "dlock")
		t.Cleanup(func() { b.Close() })
		c.all.Go(func() { c.wait(t, b, hold) })
	}
	for shown := 0; shown < n; time.Sleep(5 * time.Millisecond) {
		shown = len(backendtest.InspectOne(t, first, "j").Waiters)
	}
	return c, h
}

func (c *crowd) wait(t testing.TB, b *redis.Backend, hold time.Duration) {
	h, err := b.Acquire(t.Context(), backendtest.Request("j", backendtest.Exclusive))
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
				server := redistest.Start(b, "--maxclients", "10000")
				c, h := newCrowd(b, server, n, hold)
				wire, inside := calls(b, server)
				start := time.Now()
				if err := h.Release(context.Background(), 0); err != nil {
					b.Fatal(err)
				}
				c.all.Wait()
				took := time.Since(start)
				wireAfter, insideAfter := calls(b, server)
				all := c.latencies(start)
				b.ReportMetric(float64(wireAfter-wire-2)/float64(n), "commands/handover") // less our own look
				b.ReportMetric(float64(insideAfter-inside)/float64(n), "inside/handover")
				b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
				b.ReportMetric(took.Seconds()/(time.Duration(n)*hold).Seconds(), "times-ideal")
			}
		})
	}
}

// BenchmarkUncontended takes and releases a lock that nobody else wants.
func BenchmarkUncontended(b *testing.B) {
	server := redistest.Start(b)
	client := open(b, server.URL(), "dlock")
	defer client.Close()
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
