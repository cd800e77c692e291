package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/renew"
)

// use opens a Backend until the test ends.
func use(t testing.TB, o Options) *Backend {
	t.Helper()
	b := New(o)
	t.Cleanup(func() { b.Close() })
	return b
}

func at(t testing.TB, addr string) *Backend {
	t.Helper()
	return use(t, Options{Namespace: "dlock", Addrs: []string{addr}})
}

// leaseOf is a wish for a lease of that length.
func leaseOf(name string, mode backend.Mode, ttl time.Duration) backend.Request {
	r := backendtest.Request(name, mode)
	r.TTL = ttl
	return r
}

// kept is a hold with a keeper, as a run has it.
type kept struct {
	*renew.Keeper
	hold   backend.Hold
	failed atomic.Int32 // rows of failures
}

// keep takes a lock and keeps it.
func keep(t *testing.T, b backend.Backend, req backend.Request) *kept {
	t.Helper()
	k := &kept{hold: backendtest.MustAcquire(t, b, req)}
	k.Keeper = renew.Keep(k.hold, k.hold.Grant().Lease, renew.Config{Grace: 5 * time.Second, OnError: func(err error) {
		if err != nil {
			k.failed.Add(1)
		}
	}})
	t.Cleanup(func() { k.Stop() })
	return k
}

// fails waits for a failure.
func (k *kept) fails(t *testing.T) {
	t.Helper()
	backendtest.Eventually(t, "a renewal fails", func() bool { return k.failed.Load() > 0 })
}

// renews waits for a renewal that was asked for from now on.
func (k *kept) renews(t *testing.T) {
	t.Helper()
	now := boottime.Now()
	backendtest.Eventually(t, "a renewal", func() bool {
		k.isKept(t)
		return k.Lease().Sent > now
	})
}

func (k *kept) isKept(t *testing.T) {
	t.Helper()
	select {
	case loss := <-k.Lost():
		t.Fatalf("lost: %v", loss.Err)
	default:
	}
}

// loss waits until the hold is lost.
func (k *kept) loss(t *testing.T) renew.Loss {
	t.Helper()
	return backendtest.Receive(t, k.Lost(), "the loss")
}

// site is a server, a relay before it, and two locks that are kept through the relay.
type site struct {
	*testing.T
	server            *redistest.Server
	relay             *relay.Relay
	client            *redis.Client // straight to the server
	exclusive, shared *kept
}

// do gives the server an order.
func (s *site) do(args ...any) {
	s.Helper()
	if err := s.client.Do(s.Context(), args...).Err(); err != nil {
		s.Fatalf("%v: %v", args, err)
	}
}

func (s *site) renew() {
	s.Helper()
	s.exclusive.renews(s.T)
	s.shared.renews(s.T)
}

func (s *site) fail() {
	s.Helper()
	s.exclusive.fails(s.T)
	s.shared.fails(s.T)
}

// hang is how long a lease of keptTTL survives without an answer: 4 s of 15 s.
const keptTTL, hang = 6 * time.Second, 1500 * time.Millisecond

// passingFaults are what a lease outlives.
var passingFaults = map[string]func(*site){
	"hang":         func(s *site) { s.relay.Hole(); time.Sleep(hang); s.relay.Pass() },
	"late replies": func(s *site) { s.relay.HoldReplies(); time.Sleep(hang); s.relay.Pass() },
	"cut three times in a row": func(s *site) {
		for range 3 {
			s.relay.Cut()
			s.renew()
		}
	},
	"cut within a request": func(s *site) { s.relay.HoldReplies(); time.Sleep(hang); s.relay.Cut() },
	"delay":                func(s *site) { s.relay.Delay(300 * time.Millisecond); s.renew(); s.relay.Pass() },
	"slow":                 func(s *site) { s.renew(); s.relay.Slow(1); s.renew(); s.relay.Pass() }, // the scripts are there
	"refused":              func(s *site) { s.relay.Refuse(); s.fail(); s.relay.Pass() },
	"server stopped":       func(s *site) { s.server.Stop(); time.Sleep(hang); s.server.Cont() },
	"restart with data":    func(s *site) { s.server.Restart() },
	"clients paused":       func(s *site) { s.do("client", "pause", hang.Milliseconds(), "all") },
	"scripts forgotten":    func(s *site) { s.do("script", "flush"); s.renew(); s.do("script", "flush") },
	"out of memory":        func(s *site) { s.do("config", "set", "maxmemory", "1"); s.renew() },
	"a replica for a while": func(s *site) {
		s.do("replicaof", "127.0.0.1", "1")
		s.fail()
		s.do("replicaof", "no", "one")
	},
	"stale replica": func(s *site) {
		s.do("config", "set", "min-replicas-to-write", "1")
		s.fail()
		s.do("config", "set", "min-replicas-to-write", "0")
	},
}

func TestLeaseOutlivesPassingFaults(t *testing.T) {
	for what, fault := range passingFaults {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := &site{T: t, server: redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")}
			s.client, s.relay = s.server.Client(), relay.New(t, s.server.Addr())
			b := at(t, s.relay.Addr())
			s.exclusive = keep(t, b, leaseOf("x", backendtest.Exclusive, keptTTL))
			s.shared = keep(t, b, leaseOf("s", backendtest.Shared, keptTTL))
			fault(s)
			s.renew()
			noKeyWithoutEnd(t, s.client)
			for _, k := range []*kept{s.exclusive, s.shared} {
				k.Stop()
				k.isKept(t)
				backendtest.MustRelease(t, k.hold)
			}
			if n := s.client.Exists(t.Context(), "dlock:{x}", "dlock:{s}").Val(); n != 0 {
				t.Errorf("%d locks are left", n)
			}
		})
	}
}

func TestRestartWithoutDataIsALoss(t *testing.T) {
	s := redistest.Start(t)
	b := at(t, s.Addr())
	x, sh := keep(t, b, leaseOf("x", backendtest.Exclusive, keptTTL)), keep(t, b, leaseOf("s", backendtest.Shared, keptTTL))
	s.Restart()
	for _, k := range []*kept{x, sh} {
		if loss := k.loss(t); !errors.Is(loss.Err, backend.ErrLost) {
			t.Errorf("the loss is %v", loss.Err)
		}
	}
	if keys := s.Client().Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("the renewals made keys: %q", keys)
	}
}

func TestHoleForGoodIsALossBeforeTheServerFreesTheLock(t *testing.T) {
	s := redistest.Start(t)
	r := relay.New(t, s.Addr())
	k := keep(t, at(t, r.Addr()), leaseOf("x", backendtest.Exclusive, 2*time.Second))
	next := backendtest.Wait(t, at(t, s.Addr()), leaseOf("x", backendtest.Exclusive, time.Minute))
	r.Hole()
	next.Hold(t)
	taken := boottime.Now()
	select {
	case loss := <-k.Lost():
		if !errors.Is(loss.Err, renew.ErrLate) || loss.End >= taken || loss.Kill >= loss.End {
			t.Errorf("loss %+v, taken at %v", loss, taken)
		}
	default:
		t.Error("somebody else has the lock, and the keeper knows of no loss")
	}
}

func TestTakeOfAFullServerChangesNothing(t *testing.T) {
	s := redistest.Start(t)
	b, client := at(t, s.Addr()), s.Client()
	backendtest.MustAcquire(t, b, backendtest.Request("held", backendtest.Shared))
	client.ConfigSet(t.Context(), "maxmemory", "1")
	before := dump(t, client)
	for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared, backendtest.Slots(2)} {
		for _, name := range []string{"free", "held"} {
			_, err := b.Acquire(t.Context(), backendtest.NoWait(backendtest.Request(name, mode)))
			if busy := new(backend.BusyError); errors.As(err, &busy) {
				continue
			}
			if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "out of memory") {
				t.Errorf("%s, %v: %v", name, mode, err)
			}
		}
	}
	c := newContender(t, b, backendtest.Request("held", backendtest.Exclusive)) // as if it was subscribed
	defer listenAs(t, client, c)()
	if _, err := c.take(t.Context(), time.Minute); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("a place in line: %v", err)
	}
	if after := dump(t, client); !maps.Equal(before, after) {
		t.Errorf("before: %q\nafter: %q", before, after)
	}
}

// newContender is what Acquire works with.
func newContender(t testing.TB, b *Backend, req backend.Request) *contender {
	t.Helper()
	k, err := b.keys(req.Name, req.Token)
	if err != nil {
		t.Fatal(err)
	}
	return &contender{b: b, req: req, keys: k, owner: "{}", answered: b.clock()}
}

// listenAs subscribes to the channel of a contender.
func listenAs(t testing.TB, client *redis.Client, c *contender) (end func()) {
	t.Helper()
	sub := client.Subscribe(t.Context(), c.keys.channel(c.req.Token))
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	return func() { sub.Close() }
}

// dump is all that a server holds, but for the time left.
func dump(t testing.TB, client *redis.Client) map[string]string {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, k := range keys {
		all[k] = fmt.Sprint(client.HGetAll(t.Context(), k).Val(), client.ZRangeWithScores(t.Context(), k, 0, -1).Val(),
			client.LRange(t.Context(), k, 0, -1).Val(), client.Get(t.Context(), k).Val()) // one of them is of its type
	}
	return all
}

// TestLateReleaseHarmsNobody lets releases race with the end of their lease and the
// next holder's take.
func TestLateReleaseHarmsNobody(t *testing.T) {
	const ttl, way = 200 * time.Millisecond, 20 * time.Millisecond
	s := redistest.Start(t)
	r := relay.New(t, s.Addr())
	r.Delay(way)
	slow, fast, client := at(t, r.Addr()), at(t, s.Addr()), s.Client()
	var released, lost atomic.Int32
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			name := fmt.Sprint("job", i)
			for range 5 {
				h, err := slow.Acquire(t.Context(), leaseOf(name, backendtest.Exclusive, ttl))
				if err != nil {
					t.Error(err)
					return
				}
				next := make(chan backend.Hold)
				go func() {
					h, err := fast.Acquire(t.Context(), backendtest.Request(name, backendtest.Exclusive))
					if err != nil {
						t.Error(err)
					}
					next <- h
				}()
				// The lease began on its way, so that it ends when this arrives.
				time.Sleep(ttl - boottime.Now().Sub(h.Grant().Lease.Sent) + rand.N(5*time.Millisecond) - 3*time.Millisecond)
				if err := h.Release(t.Context(), 0); err == nil {
					released.Add(1)
				} else if errors.Is(err, backend.ErrLost) {
					lost.Add(1)
				} else {
					t.Error(err)
				}
				h = <-next
				if h == nil {
					return
				}
				if got := client.Get(t.Context(), "dlock:{"+name+"}").Val(); got != h.Grant().Token {
					t.Errorf("the lock is %q, want the next holder's token", got)
				}
				backendtest.MustRelease(t, h)
			}
		})
	}
	all.Wait()
	t.Logf("%d released in time, %d too late", released.Load(), lost.Load())
}

// TestLateTakeFindsItsTombstone withdraws takes of which no answer came: one that is
// still on its way, and one that was granted.
func TestLateTakeFindsItsTombstone(t *testing.T) {
	for what, withhold := range map[string]func(*relay.Relay){
		"request late": (*relay.Relay).HoldRequests, "reply late": (*relay.Relay).HoldReplies,
	} {
		t.Run(what, func(t *testing.T) {
			s := redistest.Start(t)
			r, client := relay.New(t, s.Addr()), s.Client()
			slow, fast := at(t, r.Addr()), at(t, s.Addr())
			for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared, backendtest.Slots(3)} {
				backendtest.InspectOne(t, slow, "job") // connects
				backendtest.InspectOne(t, fast, "job")
				c := newContender(t, slow, backendtest.Request("job", mode))
				withhold(r)
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				_, err := c.take(ctx, 0)
				cancel()
				if !errors.Is(err, backend.ErrUnavailable) || !c.unanswered {
					t.Fatalf("take: %v, unanswered %v", err, c.unanswered)
				}
				c.b = fast // its other connection
				c.withdraw()
				calls := evals(t, client)
				r.Pass()
				if what == "request late" {
					backendtest.Eventually(t, "the take arrives", func() bool { return evals(t, client) > calls })
				}
				st := backendtest.InspectOne(t, fast, "job")
				if len(st.Holders)+len(st.Waiters) > 0 {
					t.Errorf("%v: %+v", mode, st)
				}
				if _, err := fast.Acquire(t.Context(), backendtest.NoWait(c.req)); !errors.Is(err, backend.ErrLost) {
					t.Errorf("the withdrawn token: %v", err)
				}
			}
		})
	}
}

// evals counts the scripts that were run.
func evals(t testing.TB, client *redis.Client) int {
	t.Helper()
	wire, _ := commandStats(t, client)
	return wire["evalsha"] + wire["eval"]
}

func TestReleaseWithoutAnAnswerIsRepeated(t *testing.T) {
	s := redistest.Start(t)
	r, client := relay.New(t, s.Addr()), s.Client()
	backendtest.MustRelease(t, backendtest.MustAcquire(t, at(t, s.Addr()), backendtest.Request("warm", backendtest.Exclusive)))
	for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared} {
		r.Pass()
		h := backendtest.MustAcquire(t, at(t, r.Addr()), backendtest.Request("job", mode))
		r.HoldReplies()
		done := make(chan error, 1)
		go func() { done <- h.Release(t.Context(), 0) }()
		backendtest.Eventually(t, "the release", func() bool { return client.Exists(t.Context(), "dlock:{job}").Val() == 0 })
		r.Cut()
		if err := backendtest.Receive(t, done, "the end of the release"); err != nil {
			t.Errorf("%v: the release that was done says %v", mode, err)
		}
	}
}

// TestKeyInOtherHands lets somebody else have his way with the lock's key.
func TestKeyInOtherHands(t *testing.T) {
	const key = "dlock:{job}"
	s := redistest.Start(t)
	b, client := at(t, s.Addr()), s.Client()
	for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared, backendtest.Slots(2)} {
		for what, order := range map[string][]any{
			"deleted": {"del", key}, "overwritten": {"set", key, "other", "px", 60000}, "overwritten for good": {"set", key, "other"},
		} {
			client.FlushAll(t.Context())
			h := backendtest.MustAcquire(t, b, backendtest.Request("job", mode))
			client.Do(t.Context(), order...)
			before := client.Get(t.Context(), key).Val()
			if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrLost) {
				t.Errorf("%v, %s: renewal: %v", mode, what, err)
			}
			if err := h.Release(t.Context(), 0); !errors.Is(err, backend.ErrLost) {
				t.Errorf("%v, %s: release: %v", mode, what, err)
			}
			if after := client.Get(t.Context(), key).Val(); after != before {
				t.Errorf("%v, %s: the key was %q and is %q", mode, what, before, after)
			}
		}
		client.FlushAll(t.Context())
		h := backendtest.MustAcquire(t, b, backendtest.Request("job", mode))
		client.Persist(t.Context(), key)
		lease, err := h.Renew(t.Context())
		if left := client.PTTL(t.Context(), key).Val(); err != nil || left <= 0 || lease.TTL > left+time.Second {
			t.Errorf("%v: after PERSIST the renewal says %+v, %v and the key has %v left", mode, lease, err, left)
		}
		backendtest.MustRelease(t, h)
	}
}

// TestKeysOfAnotherType puts something else in the place of each key: every operation
// says so, and changes nothing.
func TestKeysOfAnotherType(t *testing.T) {
	s := redistest.Start(t)
	b, client := at(t, s.Addr()), s.Client()
	names := []string{"lock", "queue", "places", "meta", "holds", "tomb", "index"}
	for place, what := range names {
		if place == keyTomb {
			continue // it is only looked for
		}
		for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared} {
			if place == keyHolds && mode == backendtest.Exclusive {
				continue // it does not count
			}
			t.Run(fmt.Sprint(what, " ", mode), func(t *testing.T) {
				client.FlushAll(t.Context())
				h := backendtest.MustAcquire(t, b, backendtest.Request("job", mode)).(*hold)
				c := newContender(t, b, backendtest.Request("job", backendtest.Exclusive))
				fresh := newContender(t, b, backendtest.Request("new", mode))
				defer listenAs(t, client, c)()
				foul := []lockKeys{h.keys, fresh.keys}
				for _, k := range foul {
					client.Del(t.Context(), k[place])
					client.RPush(t.Context(), k[place], "mine")
				}
				before := dump(t, client)
				ops := map[string]func() error{
					"take":    func() error { _, err := fresh.take(t.Context(), 0); return err },
					"wait":    func() error { _, err := c.take(t.Context(), time.Minute); return err },
					"renew":   func() error { _, err := h.Renew(t.Context()); return err },
					"release": func() error { return h.Release(t.Context(), 0) },
					"tail":    func() error { return h.Release(t.Context(), time.Minute) },
					"revoke":  func() error { _, err := b.Revoke(t.Context(), "job", h.token, true); return err },
					"attach":  func() error { _, err := b.Attach(t.Context(), "job", h.token, 0); return err },
					"inspect": func() error { _, err := b.Inspect(t.Context(), "job"); return err },
				}
				if place == keyIndex { // nothing else needs it
					ops = map[string]func() error{"take": ops["take"], "wait": ops["wait"], "list": func() error {
						_, err := b.Inspect(t.Context())
						return err
					}}
				}
				for op, do := range ops {
					if err := do(); !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "a key of this lock holds something that is no lock") {
						t.Errorf("%s: %v", op, err)
					}
					if after := dump(t, client); !maps.Equal(before, after) {
						t.Fatalf("%s: before: %q\nafter: %q", op, before, after)
					}
				}
			})
		}
	}
}

// TestWaitersWhoseSubscriptionsAreKilled kills all subscriptions again and again.
func TestWaitersWhoseSubscriptionsAreKilled(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client()
	stop := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
				client.ClientKillByFilter(t.Context(), "type", "pubsub")
			}
		}
	})
	defer killer.Wait()
	defer close(stop)
	allGetIn(t, at(t, s.Addr()), 10, func() { time.Sleep(rand.N(400 * time.Millisecond)) })
}

// allGetIn lets n waiters get a lock one after another, and each work under it. It
// returns the order in which they came in.
func allGetIn(t *testing.T, b backend.Backend, n int, work func()) (order []int) {
	t.Helper()
	first := backendtest.MustAcquire(t, b, backendtest.Request("job", backendtest.Exclusive))
	type turn struct {
		waiter int
		hold   backend.Hold
		err    error
	}
	turns := make(chan turn, n)
	for i := range n {
		go func() {
			h, err := b.Acquire(t.Context(), backendtest.Request("job", backendtest.Exclusive))
			turns <- turn{i, h, err}
		}()
		backendtest.Eventually(t, "it is in line", func() bool { return len(backendtest.InspectOne(t, b, "job").Waiters) == i+1 })
	}
	work()
	backendtest.MustRelease(t, first)
	for range n {
		next := backendtest.Receive(t, turns, "somebody's turn")
		order = append(order, next.waiter)
		if next.err != nil {
			t.Fatalf("waiter %d: %v", next.waiter, next.err)
		}
		work()
		backendtest.MustRelease(t, next.hold)
	}
	t.Logf("turns: %v", order)
	return order
}

func TestWaitersOutliveAStoppedServer(t *testing.T) {
	s := redistest.Start(t)
	stops := 0
	order := allGetIn(t, at(t, s.Addr()), 4, func() {
		if stops++; stops == 1 {
			s.Stop()
			time.Sleep(hang)
			s.Cont()
		}
	})
	if !slices.IsSorted(order) {
		t.Errorf("the order is %v", order)
	}
}
