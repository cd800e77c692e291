package redis

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
)

// monitor is all that a server is asked for.
type monitor struct {
	t      testing.TB
	client *redis.Client
	lines  *bufio.Scanner
	until  int
}

// watch begins to look.
func watch(t testing.TB, s *redistest.Server) *monitor {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, "MONITOR\r\n"); err != nil {
		t.Fatal(err)
	}
	m := &monitor{t: t, client: s.Client(), lines: bufio.NewScanner(c)}
	m.lines.Buffer(nil, 1<<20)
	m.commands()
	return m
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// commands lists what came over the wire since it was last called.
func (m *monitor) commands() (list [][]string) {
	m.t.Helper()
	m.until++
	mark := fmt.Sprint("mark ", m.until)
	if err := m.client.Echo(m.t.Context(), mark).Err(); err != nil {
		m.t.Fatal(err)
	}
	for m.lines.Scan() {
		line := m.lines.Text()
		if strings.Contains(line, mark) {
			return list
		}
		if strings.Contains(line, " lua] ") || strings.Contains(line, `"hello"`) && m.until == 1 {
			continue
		}
		var words []string
		for _, w := range quoted.FindAllString(line, -1) {
			word, err := strconv.Unquote(w)
			if err != nil {
				word = w
			}
			words = append(words, word)
		}
		if len(words) > 0 {
			list = append(list, words)
		}
	}
	m.t.Fatalf("monitor: %v", m.lines.Err())
	return nil
}

// onTheWire are the commands that no script of ours calls; those of a test's own are
// left out.
var onTheWire = []string{"hello", "auth", "select", "eval", "evalsha", "subscribe", "ssubscribe", "unsubscribe", "sunsubscribe", "ping", "client", "script", "wait"}

// commandStats tells how often each command came over the wire since the statistics
// were reset, and how many scripts called.
func commandStats(t testing.TB, client *redis.Client) (wire map[string]int, inside int) {
	t.Helper()
	info, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	wire = map[string]int{}
	for line := range strings.Lines(info) {
		rest, ok := strings.CutPrefix(line, "cmdstat_")
		name, rest, _ := strings.Cut(rest, ":calls=")
		calls, _, _ := strings.Cut(rest, ",")
		n, err := strconv.Atoi(calls)
		switch {
		case !ok:
		case err != nil:
			t.Fatalf("%q: %v", line, err)
		case slices.Contains(onTheWire, name):
			wire[name] += n
		case name != "info" && !strings.HasPrefix(name, "config"):
			inside += n
		}
	}
	return wire, inside
}

// TestTurnsOfAnUncontendedLock counts what a run sends that finds the lock free.
func TestTurnsOfAnUncontendedLock(t *testing.T) {
	for what, o := range map[string]Options{
		"open":          {},
		"password":      {Password: "secret"},
		"user":          {Username: "default", Password: "secret"},
		"plain names":   {},
		"shared, slots": {},
	} {
		t.Run(what, func(t *testing.T) {
			s := redistest.Start(t, "--requirepass", o.Password)
			if o.Addrs = []string{s.Addr()}; what != "plain names" {
				o.Namespace = "dlock"
			}
			client := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: o.Password})
			defer client.Close()
			mode := backendtest.Exclusive
			if what == "shared, slots" {
				mode = backendtest.Slots(3)
			}
			once := func() {
				b := New(o)
				defer b.Close()
				backendtest.MustRelease(t, backendtest.MustAcquire(t, b, backendtest.Request("job", mode)))
			}
			once() // loads the scripts
			client.ConfigResetStat(t.Context())
			once()
			wire, inside := commandStats(t, client)
			if want := map[string]int{"hello": 1, "evalsha": 2}; !maps.Equal(wire, want) {
				t.Errorf("sent %v, want %v", wire, want)
			}
			t.Logf("%d commands inside the two scripts", inside)
		})
	}
}

// TestHandOverDoesNotGrowWithTheLine counts what a release and the next holder's start
// cost the server.
func TestHandOverDoesNotGrowWithTheLine(t *testing.T) {
	s := redistest.Start(t)
	b, client := at(t, s.Addr()), s.Client()
	backendtest.MustRelease(t, backendtest.MustAcquire(t, b, backendtest.Request("warm", backendtest.Exclusive)))
	insides := map[int]int{}
	for _, n := range []int{1, 10, 100} {
		name := fmt.Sprint("job", n)
		first := backendtest.MustAcquire(t, b, leaseOf(name, backendtest.Exclusive, time.Hour))
		got := make(chan backend.Hold, n)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				if h, err := b.Acquire(ctx, leaseOf(name, backendtest.Exclusive, time.Hour)); err == nil {
					got <- h
				}
			})
		}
		backendtest.Eventually(t, "all are in line", func() bool { return len(backendtest.InspectOne(t, b, name).Waiters) == n })
		for calls := -1; calls != evals(t, client); time.Sleep(50 * time.Millisecond) { // until nobody asks any more
			calls = evals(t, client)
		}
		client.ConfigResetStat(t.Context())
		backendtest.MustRelease(t, first)
		h := backendtest.Receive(t, got, "the next holder")
		wire, inside := commandStats(t, client)
		total := 0
		for _, n := range wire {
			total += n
		}
		insides[n] = inside
		t.Logf("%d waiters: %v on the wire, %d inside the scripts", n, wire, inside)
		if total > 3 || inside > 40 {
			t.Errorf("%d waiters: %v on the wire, %d inside the scripts; want at most 3 and 40", n, wire, inside)
		}
		backendtest.MustRelease(t, h)
		cancel()
		all.Wait()
	}
	if insides[10] != insides[100] || insides[1] > insides[10] { // one waiter leaves nobody to be told
		t.Errorf("inside the scripts: %v", insides)
	}
}
