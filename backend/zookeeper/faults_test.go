package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/backend/backendtest/zktest"
	"github.com/dlock/dlock/backend/zookeeper"
	"github.com/dlock/dlock/internal/boottime"
)

// dial opens the service and closes it after the test.
func dial(t testing.TB, address string) *zookeeper.Backend {
	t.Helper()
	b := open(t, address, "")
	t.Cleanup(func() { b.Close() })
	return b
}

// exclusive is a wish for the lock "j" with that TTL.
func exclusive(ttl time.Duration) backend.Request {
	req := backendtest.Request("j", backendtest.Exclusive)
	req.TTL = ttl
	return req
}

// children lists what is below a node, which need not be there.
func children(t testing.TB, c *zk.Conn, path string) []string {
	t.Helper()
	nodes, _, err := c.Children(path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return nodes
}

// TestLostAnswers loses each answer of a hold once, from the first to the last, and each
// of a wait that is given up: nothing is made twice, nobody waits for a ghost, and
// nothing stays.
func TestLostAnswers(t *testing.T) {
	server := zktest.Start(t)
	client := server.Client()
	for what, run := range map[string]func(t *testing.T, b *zookeeper.Backend, dir string) error{
		"hold":     oneHold,
		"wait":     oneWait,
		"detached": oneDetached,
	} {
		t.Run(what, func(t *testing.T) {
			for nth := 1; ; nth++ {
				dir := fmt.Sprintf("/lost/%s/%d", what, nth)
				cutter := zktest.NewCutter(t, strings.TrimPrefix(server.URL(), "zk://"), nth)
				b := open(t, cutter.URL()+dir, "")
				if err := run(t, b, server.URL()+dir); err != nil {
					t.Errorf("answer %d: %v", nth, err)
				}
				cuts := cutter.Cuts()
				b.Close()
				backendtest.Eventually(t, "nothing is left", func() bool { return len(children(t, client, dir+"/j")) == 0 })
				if cuts == 0 {
					t.Logf("all %d answers were lost once", nth-1)
					if nth < 4 {
						t.Error("there were too few answers to show anything")
					}
					return
				}
			}
		})
	}
}

func oneHold(t *testing.T, b *zookeeper.Backend, direct string) error {
	h, err := b.Acquire(t.Context(), exclusive(30*time.Second))
	if err != nil {
		return err
	}
	s := backendtest.InspectOne(t, dial(t, direct), "j")
	if len(s.Holders) != 1 || len(s.Waiters) != 0 {
		t.Errorf("in line are %+v", s)
	}
	if _, err := h.Renew(t.Context()); err != nil {
		if _, err = h.Renew(t.Context()); err != nil { // as package renew does it
			return fmt.Errorf("renew: %w", err)
		}
	}
	if err := h.Release(t.Context(), 0); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
}

func oneWait(t *testing.T, b *zookeeper.Backend, direct string) error {
	d := dial(t, direct)
	h := backendtest.MustAcquire(t, d, exclusive(30*time.Second))
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	req := exclusive(30 * time.Second)
	req.Waiting = func(backend.Wait) error {
		time.AfterFunc(20*time.Millisecond, func() { cancel(enough) })
		return nil
	}
	if _, err := b.Acquire(ctx, req); !errors.Is(err, enough) {
		return fmt.Errorf("wait: %w", err)
	}
	backendtest.MustRelease(t, h)
	return nil
}

func oneDetached(t *testing.T, b *zookeeper.Backend, direct string) error {
	d := dial(t, direct)
	h, err := b.Acquire(t.Context(), backendtest.Detached(exclusive(time.Hour), time.Hour))
	if err != nil {
		return err
	}
	if s := backendtest.InspectOne(t, d, "j"); len(s.Holders) != 1 || s.Holders[0].Token != h.Grant().Token {
		t.Errorf("holders %+v", s.Holders)
	}
	if err := h.Release(t.Context(), time.Hour); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if s := backendtest.InspectOne(t, d, "j"); len(s.Holders) != 1 || !s.Holders[0].Tail {
		t.Errorf("holders %+v, want a tail", s.Holders)
	}
	_, err = d.Revoke(t.Context(), "j", h.Grant().Token, false)
	return err
}

// TestExpiredSessionIsALoss cuts a holder off for longer than its session lasts.
func TestExpiredSessionIsALoss(t *testing.T) {
	server := zktest.Start(t)
	r := relay.New(t, server.Addr())
	b, direct := dial(t, "zk://"+r.Addr()+"/x"), dial(t, server.URL()+"/x")
	h := backendtest.MustAcquire(t, b, exclusive(time.Second))
	next := backendtest.Wait(t, direct, exclusive(time.Second))
	r.Hole()
	second := next.Hold(t)
	if at := h.Grant().Lease.Deadline(); boottime.Now() < at {
		t.Errorf("the next one got in %v before the first one's deadline", at.Sub(boottime.Now()))
	}
	r.Pass()
	if err := backendtest.Receive(t, h.Lost(), "word of the loss"); !errors.Is(err, backend.ErrLost) {
		t.Errorf("lost: %v", err)
	}
	if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("renew: %v", err)
	}
	if err := h.Release(t.Context(), time.Hour); !errors.Is(err, backend.ErrLost) {
		t.Errorf("release: %v", err)
	}
	if _, err := second.Renew(t.Context()); err != nil {
		t.Errorf("the next one was harmed: %v", err)
	}
	backendtest.MustRelease(t, second)
}

// TestExpiredWaiterJoinsAgain cuts a waiter off for longer than its session lasts.
func TestExpiredWaiterJoinsAgain(t *testing.T) {
	server := zktest.Start(t)
	r := relay.New(t, server.Addr())
	b, direct := dial(t, "zk://"+r.Addr()+"/x"), dial(t, server.URL()+"/x")
	h := backendtest.MustAcquire(t, direct, exclusive(30*time.Second))
	first := backendtest.Wait(t, b, exclusive(time.Second))
	second := backendtest.Wait(t, direct, exclusive(30*time.Second))
	r.Hole()
	inLine := func(n int) func() bool {
		return func() bool { return len(backendtest.InspectOne(t, direct, "j").Waiters) == n }
	}
	backendtest.Eventually(t, "the place ends", inLine(1))
	r.Pass()
	backendtest.Eventually(t, "it joins again", inLine(2))
	backendtest.MustRelease(t, h)
	h = second.Hold(t)
	first.StillWaits(t)
	backendtest.MustRelease(t, h)
	backendtest.MustRelease(t, first.Hold(t))
}

// TestDeletedNodeIsALoss removes a holder's nodes, one and the other, as somebody with a
// shell may do.
func TestDeletedNodeIsALoss(t *testing.T) {
	server := zktest.Start(t)
	client, b := server.Client(), dial(t, server.URL()+"/x")
	for _, word := range []string{"-lock-", ""} {
		h := backendtest.MustAcquire(t, b, exclusive(30*time.Second))
		for _, node := range children(t, client, "/x/j") {
			if strings.Contains(node, word) {
				if err := client.Delete("/x/j/"+node, -1); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := backendtest.Receive(t, h.Lost(), "word of the loss"); !errors.Is(err, backend.ErrLost) {
			t.Errorf("lost: %v", err)
		}
		if err := h.Release(t.Context(), 0); !errors.Is(err, backend.ErrLost) {
			t.Errorf("release: %v", err)
		}
		backendtest.MustRelease(t, backendtest.MustAcquire(t, b, exclusive(30*time.Second)))
	}
}

// TestRestartedServerDisturbsNobody: holder, waiter and line survive.
func TestRestartedServerDisturbsNobody(t *testing.T) {
	server := zktest.Start(t)
	h := backendtest.MustAcquire(t, dial(t, server.URL()+"/x"), exclusive(30*time.Second))
	next := backendtest.Wait(t, dial(t, server.URL()+"/x"), exclusive(30*time.Second))
	server.Restart()
	backendtest.Eventually(t, "a renewal", func() bool {
		_, err := h.Renew(t.Context())
		if errors.Is(err, backend.ErrLost) {
			t.Fatal(err)
		}
		return err == nil
	})
	next.StillWaits(t)
	backendtest.MustRelease(t, h)
	backendtest.MustRelease(t, next.Hold(t))
}

// TestGrantedTimeoutCounts: a server that grants less than the TTL, or more, is taken at
// its word, and the user is told once.
func TestGrantedTimeoutCounts(t *testing.T) {
	for _, tt := range []struct {
		setting       string
		asked, wanted time.Duration
	}{
		{"maxSessionTimeout=2000", time.Minute, 2 * time.Second},
		{"minSessionTimeout=5000", time.Second, 5 * time.Second},
		{"maxSessionTimeout=2000", 30 * 24 * time.Hour, 2 * time.Second}, // more than the protocol knows
	} {
		server := zktest.Start(t, tt.setting)
		var said []string
		b := openWarning(t, server.URL()+"/x", func(msg string) { said = append(said, msg) })
		for range 2 {
			h := backendtest.MustAcquire(t, b, exclusive(tt.asked))
			l := h.Grant().Lease
			if l.TTL > tt.wanted || l.TTL < tt.wanted/2 || l.Every != tt.wanted/4 {
				t.Errorf("%s: asked for %v, got %+v", tt.setting, tt.asked, l)
			}
			if shown := backendtest.InspectOne(t, b, "j").Holders; len(shown) != 1 || shown[0].Left != tt.wanted {
				t.Errorf("%s: shown as %+v", tt.setting, shown)
			}
			backendtest.MustRelease(t, h)
		}
		if len(said) != 1 || !strings.Contains(said[0], tt.wanted.String()) {
			t.Errorf("%s: said %q, want one word of %v", tt.setting, said, tt.wanted)
		}
	}
}

// TestContainersGoAway takes many locks while the server collects empty containers as
// fast as it can: no race with that shows, and nothing stays.
func TestContainersGoAway(t *testing.T) {
	server := zktest.Start(t, "-Dznode.container.checkIntervalMs=2", "-Dznode.container.maxPerMinute=60000")
	var all sync.WaitGroup
	var mu sync.Mutex
	inside, last := 0, uint64(0)
	for i := range 6 {
		b := dial(t, server.URL()+"/x")
		all.Go(func() {
			for round := range 25 {
				req := exclusive(30 * time.Second)
				if round%5 == 4 {
					req.Name = fmt.Sprintf("one of many %d %d", i, round)
				}
				h, err := b.Acquire(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				if req.Name == "j" {
					mu.Lock()
					if inside++; inside != 1 || h.Grant().Fence <= last {
						t.Errorf("%d inside, fence %d after %d", inside, h.Grant().Fence, last)
					}
					last = h.Grant().Fence
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					inside--
					mu.Unlock()
				}
				backendtest.MustRelease(t, h)
				time.Sleep(time.Duration(i*round%7) * time.Millisecond) // so that it is free now and then
			}
		})
	}
	all.Wait()
	client := server.Client()
	backendtest.Eventually(t, "the locks' nodes are gone", func() bool { return len(children(t, client, "/x")) == 0 })
}
