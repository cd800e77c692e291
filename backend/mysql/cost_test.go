package mysql

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/mysqltest"
)

// TestFlights: what an uncontended lock costs after the connection is there. The first
// take of a name ever looks at the shape of the table as well.
func TestFlights(t *testing.T) {
	server := mysqltest.Start(t)
	for _, tt := range []struct {
		options       string
		mode          backend.Mode
		take, release int64
	}{
		{"mode=table", backendtest.Exclusive, 1, 1},
		{"mode=table", backendtest.Shared, 3, 3},
		{"mode=optimistic", backendtest.Exclusive, 2, 1},
		{"mode=optimistic&cas=updated_at", backendtest.Exclusive, 2, 1},
		{"mode=pessimistic", backendtest.Exclusive, 3, 2},
	} {
		t.Run(fmt.Sprint(tt.options, " ", tt.mode), func(t *testing.T) {
			m := newMeter(t, server.Addr())
			b := use(t, through(m.addr(), tt.options))
			request := func() backend.Request { return backendtest.Request("j", tt.mode) }
			backendtest.MustRelease(t, backendtest.MustAcquire(t, b, request())) // it is connected now
			before := m.flights.Load()
			h := backendtest.MustAcquire(t, b, request())
			took := m.flights.Load() - before
			before = m.flights.Load()
			backendtest.MustRelease(t, h)
			if released := m.flights.Load() - before; took != tt.take || released != tt.release {
				t.Errorf("take %d, release %d flights, want %d and %d", took, released, tt.take, tt.release)
			}
		})
	}
}

// crowd is a number of waiters in line, each with connections of its own.
type crowd struct {
	entered, left chan time.Time
	all           sync.WaitGroup
}

// newCrowd lets n waiters line up behind a hold, and stay in for stay each when their
// turn comes.
func newCrowd(t testing.TB, address string, n int, stay time.Duration) (*crowd, backend.Hold) {
	t.Helper()
	c := &crowd{entered: make(chan time.Time, n), left: make(chan time.Time, n)}
	first := use(t, address)
	h := backendtest.MustAcquire(t, first, exclusive("j"))
	for range n {
		b := use(t, address)
		c.all.Go(func() { c.wait(t, b, stay) })
	}
	backendtest.Eventually(t, "all stand in line", func() bool { return first.standing(t, "j") == n })
	return c, h
}

func (c *crowd) wait(t testing.TB, b *Backend, stay time.Duration) {
	req := exclusive("j")
	req.TTL = time.Hour // no heartbeat while we count
	h, err := b.Acquire(t.Context(), req)
	if err != nil {
		t.Error(err)
		return
	}
	c.entered <- time.Now()
	time.Sleep(stay)
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

// TestStatementsPerHandOver: they do not depend on how many wait.
func TestStatementsPerHandOver(t *testing.T) {
	for _, tt := range []struct {
		options string
		most    int // statements of one hand-over, all counted
	}{{"mode=table", 3}, {"mode=optimistic", 4}, {"mode=pessimistic", 12}} {
		t.Run(tt.options, func(t *testing.T) {
			server := mysqltest.Start(t)
			for _, n := range []int{1, 10, 100} {
				conn := server.Conn("d")
				questions := func() int {
					return conn.Number("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'QUESTIONS'")
				}
				c, h := newCrowd(t, server.URL("d")+"?"+tt.options, n, 0)
				before := questions()
				backendtest.MustRelease(t, h)
				c.all.Wait()
				// One is our own question, and the first release is nobody's hand-over but the last.
				if sent := questions() - before - 1; sent > tt.most*(n+1) {
					t.Errorf("%d waiters: %d statements, want at most %d for each of %d holders", n, sent, tt.most, n+1)
				} else {
					t.Logf("%d waiters: %.2f statements for each hand-over", n, float64(sent)/float64(n))
				}
			}
		})
	}
}

// BenchmarkHandOver lets waiters with connections of their own drain, each holding for
// 10 ms, and reports what a hand-over costs the server, how long it takes, and how
// many times the ideal time the whole line took.
func BenchmarkHandOver(b *testing.B) {
	const stay = 10 * time.Millisecond
	for _, options := range []string{"mode=table", "mode=optimistic", "mode=pessimistic"} {
		for _, n := range []int{1, 10, 100} {
			b.Run(fmt.Sprint(options, "/waiters=", n), func(b *testing.B) {
				for range b.N {
					server := mysqltest.Start(b)
					c, h := newCrowd(b, server.URL("d")+"?"+options, n, stay)
					start := time.Now()
					backendtest.MustRelease(b, h)
					c.all.Wait()
					took := time.Since(start)
					all := c.latencies(start)
					b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
					b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
					b.ReportMetric(took.Seconds()/(time.Duration(n)*stay).Seconds(), "times-ideal")
				}
			})
		}
	}
}

// BenchmarkUncontended takes and releases a lock that nobody else wants.
func BenchmarkUncontended(b *testing.B) {
	server := mysqltest.Start(b)
	for _, options := range modes {
		b.Run(options, func(b *testing.B) {
			client := use(b, server.URL("d")+"?"+options)
			for b.Loop() {
				backendtest.MustRelease(b, backendtest.MustAcquire(b, client, exclusive("j")))
			}
		})
	}
}
