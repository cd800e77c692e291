package consul_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/consultest"
	"github.com/dlock/dlock/backend/backendtest/relay"
)

// behindOne is a hold that had to wait itself, and a waiter behind it for whom it has
// looked already.
func behindOne(t *testing.T, url string, next backend.Backend, req backend.Request) (backend.Hold, *backendtest.Waiter) {
	t.Helper()
	first, second := open(t, url, ""), open(t, url, "")
	t.Cleanup(func() { first.Close(); second.Close() })
	before := backendtest.MustAcquire(t, first, backendtest.Request(req.Name, backendtest.Exclusive))
	own := backendtest.Wait(t, second, backendtest.Request(req.Name, backendtest.Exclusive))
	w := backendtest.Wait(t, next, req)
	backendtest.MustRelease(t, before)
	h := own.Hold(t)
	time.Sleep(300 * time.Millisecond) // it looks
	return h, w
}

func lockKey(t *testing.T, c *api.Client, name string) *api.KVPair {
	t.Helper()
	p, _, err := c.KV().Get("x/"+name+"/.lock", nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPassesOn: a lock that is passed on was never free, its record is the successor's,
// its fence has grown, and nothing is left behind in the end.
func TestPassesOn(t *testing.T) {
	server := consultest.Start(t)
	c := server.Client()
	next := open(t, server.URL()+"/x", "")
	defer next.Close()
	req := backendtest.Request("j", backendtest.Exclusive)
	req.Owner.Reason = "the next one"
	h, w := behindOne(t, server.URL()+"/x", next, req)
	before := lockKey(t, c, "j")
	backendtest.MustRelease(t, h)
	after := w.Hold(t)
	p := lockKey(t, c, "j")
	if p == nil || p.CreateIndex != before.CreateIndex {
		t.Errorf("the lock was free for a moment: %+v, then %+v", before, p)
	}
	if f := after.Grant().Fence; f != p.ModifyIndex || f <= h.Grant().Fence {
		t.Errorf("fence %d after %d, want %d", f, h.Grant().Fence, p.ModifyIndex)
	}
	all, err := next.Inspect(t.Context(), "j")
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v, %v", all, err)
	}
	if s := all[0]; len(s.Holders) != 1 || s.Holders[0].Owner.Reason != "the next one" || s.Holders[0].Token != req.Token || len(s.Waiters) != 0 {
		t.Errorf("%+v", s)
	}
	if _, err := after.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	backendtest.MustRelease(t, after)
	if keys, _, err := c.KV().Keys("x", "", nil); err != nil || len(keys) != 0 {
		t.Errorf("left behind: %q, %v", keys, err)
	}
}

// TestPassedOnToWhoGaveUp: who is given the lock in the moment in which it gives up frees
// it, without the lock-delay that the end of its session would leave.
func TestPassedOnToWhoGaveUp(t *testing.T) {
	server := consultest.Start(t)
	r := relay.New(t, server.Addr())
	next, b := open(t, "consul://"+r.Addr()+"/x", ""), open(t, server.URL()+"/x", "")
	defer next.Close()
	defer b.Close()
	for round := range 20 {
		name := fmt.Sprint("j", round)
		req := backendtest.Request(name, backendtest.Exclusive)
		req.Grace = 50 * time.Second // and so the lock-delay
		h, w := behindOne(t, server.URL()+"/x", next, req)
		if round%2 == 0 {
			r.HoldReplies() // it does not learn of it
			backendtest.MustRelease(t, h)
			w.Cancel(context.Canceled)
			r.Pass()
		} else {
			go w.Cancel(context.Canceled)
			backendtest.MustRelease(t, h)
		}
		if got, err := w.Result(t); err == nil { // it was faster than its end
			backendtest.MustRelease(t, got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		after, err := b.Acquire(ctx, backendtest.Request(name, backendtest.Exclusive))
		cancel()
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		backendtest.MustRelease(t, after)
	}
}

// TestFreeNowAndThen: however long the line, the lock is free for a moment after some
// turns, for programs that do not stand in it; and it is passed on between those.
func TestFreeNowAndThen(t *testing.T) {
	const waiters = 40
	server := consultest.Start(t)
	c := server.Client()
	h := backendtest.MustAcquire(t, open(t, server.URL()+"/x", ""), backendtest.Request("j", backendtest.Exclusive))
	var all []*backendtest.Waiter
	for range waiters {
		b := open(t, server.URL()+"/x", "")
		t.Cleanup(func() { b.Close() })
		all = append(all, backendtest.Wait(t, b, backendtest.Request("j", backendtest.Exclusive)))
	}
	free, created := 0, uint64(0)
	for _, w := range all {
		backendtest.MustRelease(t, h)
		h = w.Hold(t)
		if p := lockKey(t, c, "j"); p.CreateIndex != created {
			free, created = free+1, p.CreateIndex
		}
		time.Sleep(50 * time.Millisecond) // it looks who is next
	}
	backendtest.MustRelease(t, h)
	if free < waiters/11 || free > waiters/2 {
		t.Errorf("the lock was free %d times in %d turns", free, waiters)
	}
	t.Logf("free %d times in %d turns", free, waiters)
}
