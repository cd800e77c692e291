package consul_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/consultest"
	"github.com/dlock/dlock/backend/backendtest/relay"
)

// destroy ends the session that has a key.
func destroy(t *testing.T, c *api.Client, key string) {
	t.Helper()
	p, _, err := c.KV().Get(key, nil)
	if err == nil && (p == nil || p.Session == "") {
		t.Fatalf("nobody has %s: %+v", key, p)
	}
	if err == nil {
		_, err = c.Session().Destroy(p.Session, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSettle: nobody gets in, in whatever mode, while the command of a hold whose session
// was destroyed may be dying; nor does it help that another reader leaves cleanly, whose
// own command would have ended faster.
func TestSettle(t *testing.T) {
	const grace = 2 * time.Second
	server := consultest.Start(t)
	for what, before := range map[string]func(t *testing.T, b backend.Backend, name string) (destroyed time.Time){
		"alone": func(t *testing.T, b backend.Backend, name string) time.Time {
			req := backendtest.Request(name, backendtest.Exclusive)
			req.Grace = grace
			backendtest.MustAcquire(t, b, req)
			now := time.Now()
			destroy(t, server.Client(), "x/"+name+"/.lock")
			return now
		},
		"group": func(t *testing.T, b backend.Backend, name string) time.Time {
			req := backendtest.Request(name, backendtest.Shared)
			req.Grace = grace
			h := backendtest.MustAcquire(t, b, req)
			now := time.Now()
			destroy(t, server.Client(), "x/"+name+"/.lock")
			if err := h.Release(t.Context(), 0); !errors.Is(err, backend.ErrLost) {
				t.Errorf("release: %v, want lost", err)
			}
			return now
		},
		"one of two readers": func(t *testing.T, b backend.Backend, name string) time.Time {
			dies, leaves := backendtest.Request(name, backendtest.Shared), backendtest.Request(name, backendtest.Shared)
			dies.Grace, leaves.Grace = grace, time.Millisecond
			h := backendtest.MustAcquire(t, b, dies)
			other := backendtest.MustAcquire(t, b, leaves)
			now := time.Now()
			destroy(t, server.Client(), "x.dlock/"+name+"/"+h.Grant().Token)
			backendtest.MustRelease(t, backendtest.MustAcquire(t, b, backendtest.Request(name, backendtest.Shared)))
			backendtest.MustRelease(t, other)
			return now
		},
	} {
		for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared, backendtest.Slots(2)} {
			t.Run(what+", then "+mode.String(), func(t *testing.T) {
				t.Parallel()
				b := open(t, server.URL()+"/x", "")
				defer b.Close()
				name := what + mode.String()
				destroyed := before(t, b, name)
				h := backendtest.MustAcquire(t, b, backendtest.Request(name, mode))
				if settled := time.Since(destroyed); settled < grace+time.Second {
					t.Errorf("the next one got in after %v; the command has %v to end", settled, grace+time.Second)
				}
				backendtest.MustRelease(t, h)
			})
		}
	}
}

// TestGroupSessionDestroyed: all readers are told at once, not only at a renewal.
func TestGroupSessionDestroyed(t *testing.T) {
	server := consultest.Start(t)
	b := open(t, server.URL()+"/x", "")
	defer b.Close()
	var holds []backend.Hold
	for range 3 {
		req := backendtest.Request("j", backendtest.Shared)
		req.TTL = time.Hour // nobody renews in the meantime
		holds = append(holds, backendtest.MustAcquire(t, b, req))
	}
	time.Sleep(time.Second) // the watch has begun
	destroyed := time.Now()
	destroy(t, server.Client(), "x/j/.lock")
	for _, h := range holds {
		if err := backendtest.Receive(t, h.Lost(), "word of the loss"); err == nil {
			t.Error("no loss")
		}
	}
	t.Logf("all were told after %v", time.Since(destroyed))
}

// TestFenceBesideForeignKey: what another program has left at .lock does not tell the
// fence of the hold that follows.
func TestFenceBesideForeignKey(t *testing.T) {
	server := consultest.Start(t)
	c := server.Client()
	b := open(t, server.URL()+"/x", "")
	defer b.Close()
	if _, err := c.KV().Put(&api.KVPair{Key: "x/j/.lock", Flags: api.LockFlagValue}, nil); err != nil {
		t.Fatal(err)
	}
	h := backendtest.MustAcquire(t, b, backendtest.Request("j", backendtest.Exclusive))
	p, _, err := c.KV().Get("x/j/.lock", nil)
	if err != nil || p == nil || p.ModifyIndex != h.Grant().Fence {
		t.Errorf("fence %d, key %+v, %v", h.Grant().Fence, p, err)
	}
	backendtest.MustRelease(t, h)
}

// TestCutsDoNotKeepAWaiter: a query that was cut off is made again, long before the time
// for which it would have run.
func TestCutsDoNotKeepAWaiter(t *testing.T) {
	server := consultest.Start(t)
	r := relay.New(t, server.Addr())
	b, far := open(t, server.URL()+"/x", ""), open(t, "consul://"+r.Addr()+"/x", "")
	defer b.Close()
	defer far.Close()
	h := backendtest.MustAcquire(t, b, backendtest.Request("j", backendtest.Exclusive))
	req := backendtest.Request("j", backendtest.Exclusive)
	req.TTL = time.Hour
	w := backendtest.Wait(t, far, req)
	for range 3 {
		time.Sleep(300 * time.Millisecond)
		r.Cut()
		w.StillWaits(t)
	}
	backendtest.MustRelease(t, h)
	backendtest.MustRelease(t, w.Hold(t))
}

// TestReadersSleep: holds of others, on the same lock or elsewhere, cost a reader nothing.
func TestReadersSleep(t *testing.T) {
	const others = 40
	server := consultest.Start(t)
	counter := consultest.Count(t, server)
	reader, b := open(t, counter.URL+"/x", ""), open(t, server.URL()+"/x", "")
	defer reader.Close()
	defer b.Close()
	req := backendtest.Request("j", backendtest.Shared)
	req.TTL = time.Hour
	h := backendtest.MustAcquire(t, reader, req)
	time.Sleep(time.Second) // the watch has begun
	before := counter.Requests()
	for range others {
		backendtest.MustRelease(t, backendtest.MustAcquire(t, b, backendtest.Request("j", backendtest.Shared)))
		backendtest.MustRelease(t, backendtest.MustAcquire(t, b, backendtest.Request("k", backendtest.Exclusive)))
	}
	if n := counter.Requests() - before; n > others/4 {
		t.Errorf("%d requests of a reader while others came and went %d times", n, others)
	}
	backendtest.MustRelease(t, h)
}
