package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/internal/boottime"
)

// The faults of the recipes that are in use, one by one.

// TestCrashBetweenTakeAndExpiry: a take is one command, and however it ends there is
// no key without an end.
func TestCrashBetweenTakeAndExpiry(t *testing.T) {
	s := redistest.Start(t)
	r, client := relay.New(t, s.Addr()), s.Client()
	b := at(t, r.Addr())
	backendtest.MustRelease(t, backendtest.MustAcquire(t, b, backendtest.Request("warm", backendtest.Exclusive)))
	m := watch(t, s)
	backendtest.MustAcquire(t, b, backendtest.Request("one", backendtest.Exclusive))
	if got := m.commands(); len(got) != 1 {
		t.Errorf("a take is %q", got)
	}
	var all sync.WaitGroup
	for i := range 500 {
		mode := []backend.Mode{backendtest.Exclusive, backendtest.Shared, backendtest.Slots(2)}[i%3]
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(10*time.Millisecond))
			defer cancel()
			_, _ = b.Acquire(ctx, backendtest.Request(fmt.Sprint("job", i%20), mode))
		})
		if i%10 == 0 {
			r.Cut()
			all.Wait()
		}
	}
	all.Wait()
	noKeyWithoutEnd(t, client)
}

// noKeyWithoutEnd looks at all keys of a server.
func noKeyWithoutEnd(t testing.TB, client *redis.Client) {
	t.Helper()
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("keys: %q, %v", keys, err)
	}
	for _, k := range keys {
		if client.PTTL(t.Context(), k).Val() == -1 {
			t.Errorf("%s has no end", k)
		}
	}
}

func TestWrongOwnersRelease(t *testing.T) {
	s := redistest.Start(t)
	b, client := at(t, s.Addr()), s.Client()
	for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared, backendtest.Slots(1)} {
		first := backendtest.MustAcquire(t, b, leaseOf("job", mode, 20*time.Millisecond))
		second := backendtest.MustAcquire(t, b, backendtest.Request("job", mode))
		backendtest.Eventually(t, "the end of the first lease", func() bool { return len(backendtest.InspectOne(t, b, "job").Holders) == 1 })
		before := dump(t, client)
		for _, tail := range []time.Duration{0, time.Minute} {
			if err := first.Release(t.Context(), tail); !errors.Is(err, backend.ErrLost) {
				t.Errorf("%v: the late release says %v", mode, err)
			}
		}
		for _, token := range []string{"", " ", strings.ToUpper(second.Grant().Token), second.Grant().Token + " ", second.Grant().Token[:8]} {
			forged := *second.(*hold)
			forged.token = token
			if err := forged.Release(t.Context(), 0); !errors.Is(err, backend.ErrLost) {
				t.Errorf("%v: the release of %q says %v", mode, token, err)
			}
		}
		if after := dump(t, client); mode == backendtest.Exclusive && !maps.Equal(before, after) {
			t.Errorf("before: %q\nafter: %q", before, after)
		}
		if _, err := second.Renew(t.Context()); err != nil {
			t.Errorf("%v: the second holder: %v", mode, err)
		}
		backendtest.MustRelease(t, second)
	}
}

func TestReleaseInOneStep(t *testing.T) {
	s := redistest.Start(t)
	b := at(t, s.Addr())
	backendtest.MustRelease(t, backendtest.MustAcquire(t, b, backendtest.Request("warm", backendtest.Exclusive)))
	h := backendtest.MustAcquire(t, b, backendtest.Request("job", backendtest.Exclusive))
	m := watch(t, s)
	backendtest.MustRelease(t, h)
	if got := m.commands(); len(got) != 1 {
		t.Errorf("a release is %q", got)
	}
}

func TestLeaseDoesNotEndWhileTheJobWorks(t *testing.T) {
	s := redistest.Start(t)
	b := at(t, s.Addr())
	for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Slots(1)} {
		k := keep(t, b, leaseOf("job", mode, time.Second))
		next := backendtest.Wait(t, at(t, s.Addr()), leaseOf("job", mode, time.Second))
		for range 10 {
			k.renews(t)
			next.StillWaits(t)
		}
		k.Stop()
		backendtest.MustRelease(t, k.hold)
		backendtest.MustRelease(t, next.Hold(t))
	}
}

// TestClocksOfTwoClientsApart gives two clients clocks that are hours apart, and looks
// for times in all that is sent.
func TestClocksOfTwoClientsApart(t *testing.T) {
	s := redistest.Start(t)
	m := watch(t, s)
	early, late := at(t, s.Addr()), at(t, s.Addr())
	late.clock = func() boottime.Instant { return boottime.Now().Add(25 * time.Hour) }
	for _, two := range [][2]*Backend{{early, late}, {late, early}} {
		first, err := two[0].Acquire(t.Context(), leaseOf("job", backendtest.Exclusive, time.Second))
		if err != nil {
			t.Fatal(err)
		}
		backendtest.MustBeBusy(t, two[1], backendtest.Request("job", backendtest.Exclusive))
		second := backendtest.Wait(t, two[1], leaseOf("job", backendtest.Exclusive, time.Minute)).Hold(t)
		if now := two[0].clock(); first.Grant().Lease.Deadline() >= now {
			t.Errorf("the lease was given to the next while its holder still counted on it")
		}
		if lease := second.Grant().Lease; two[1].clock().Sub(lease.Sent) > time.Minute || lease.TTL != time.Minute {
			t.Errorf("lease %+v at %v", lease, two[1].clock())
		}
		if _, err := second.Renew(t.Context()); err != nil {
			t.Error(err)
		}
		backendtest.MustRelease(t, second)
	}
	commands := m.commands()
	if len(commands) < 8 {
		t.Errorf("commands: %q", commands)
	}
	asked := []string{"1000", "30000", "60000"} // the TTLs, which may be the time since the boot
	for _, command := range commands {
		for _, word := range command {
			if n, err := strconv.ParseFloat(word, 64); err == nil && isTime(n) && !slices.Contains(asked, word) {
				t.Errorf("a time was sent: %q", command)
			}
		}
	}
}

// isTime tells whether a number may be the present time, since 1970 or the boot, in
// any unit.
func isTime(n float64) bool {
	for _, now := range []float64{float64(time.Now().UnixNano()), float64(boottime.Now()), float64(boottime.Now().Add(25 * time.Hour))} {
		for _, unit := range []float64{1, 1e3, 1e6, 1e9} {
			if distance := n*unit - now; distance > -60e9 && distance < 3600e9 {
				return true
			}
		}
	}
	return false
}

// TestTwoContendersOneExpiredLock lets many wait for the end of a lease that nobody
// renews, in line and by asking: one of them gets it.
func TestTwoContendersOneExpiredLock(t *testing.T) {
	s := redistest.Start(t)
	b := at(t, s.Addr())
	for round := range 30 {
		name := fmt.Sprint("job", round)
		backendtest.MustAcquire(t, b, leaseOf(name, backendtest.Exclusive, 150*time.Millisecond))
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan backend.Hold, 16)
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				if h := contend(ctx, b, backendtest.Request(name, backendtest.Exclusive), i%2 == 0); h != nil {
					got <- h
				}
			})
		}
		h := backendtest.Receive(t, got, "the lock")
		time.Sleep(20 * time.Millisecond) // for the others to go wrong
		cancel()
		all.Wait()
		if len(got) > 0 {
			t.Errorf("round %d: %d have the lock", round, 1+len(got))
		}
		if _, err := h.Renew(t.Context()); err != nil {
			t.Errorf("round %d: who got it says %v", round, err)
		}
		backendtest.MustRelease(t, h)
	}
}

// contend takes the lock by waiting in line, or by asking again and again.
func contend(ctx context.Context, b backend.Backend, req backend.Request, inLine bool) backend.Hold {
	for ctx.Err() == nil {
		req.NoWait = !inLine
		if h, err := b.Acquire(ctx, req); err == nil {
			return h
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func TestRenewalDoesNotResurrect(t *testing.T) {
	s := redistest.Start(t)
	b, client := at(t, s.Addr()), s.Client()
	for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared, backendtest.Slots(2)} {
		for what, between := range map[string]func(){
			"nobody": func() {},
			"somebody": func() {
				backendtest.MustRelease(t, backendtest.MustAcquire(t, b, backendtest.Request("job", backendtest.Exclusive)))
			},
			"data all gone": func() { client.FlushAll(t.Context()) },
		} {
			h := backendtest.MustAcquire(t, b, leaseOf("job", mode, 20*time.Millisecond))
			backendtest.Eventually(t, "the lease's end", func() bool { return client.Exists(t.Context(), "dlock:{job}").Val() == 0 })
			between()
			if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrLost) {
				t.Errorf("%v, %s: the renewal says %v", mode, what, err)
			}
			if client.Exists(t.Context(), "dlock:{job}").Val() != 0 {
				t.Errorf("%v, %s: the renewal made the key anew", mode, what)
			}
		}
	}
}
