package zookeeper_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/zktest"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/renew"
)

// keep renews a hold as a run does, and delivers its loss.
func keep(t *testing.T, h backend.Hold) *renew.Keeper {
	k := renew.Keep(h, h.Grant().Lease, renew.Config{Lost: h.Lost()})
	t.Cleanup(func() { k.Stop() })
	return k
}

// TestFollowerCutOffFromItsLeader: a follower that the leader has given up on goes on to
// answer its clients for syncLimit ticks, here 20 s. Nobody may believe it for so long.
func TestFollowerCutOffFromItsLeader(t *testing.T) {
	e := zktest.StartCuttable(t, 3, "syncLimit=40", "tickTime=500")
	leader, follower := e.Leader(t), e.Follower(t)
	direct := dial(t, leader.URL()+"/x")
	rounds, ttl := 2, 6*time.Second
	if os.Getenv("DLOCK_FULL") != "" {
		rounds = 100
	}
	for range rounds {
		h := backendtest.MustAcquire(t, dial(t, follower.URL()+"/x"), exclusive(ttl))
		k := keep(t, h)
		next := backendtest.Wait(t, direct, exclusive(ttl))
		for range 3 { // cut off right after a write that reached the leader, when least is known
			last := k.Lease().Sent
			backendtest.Eventually(t, "a renewal", func() bool { return k.Lease().Sent > last })
		}
		e.Cut(follower, leader)
		second := next.Hold(t)
		now := boottime.Now()
		if follower.Mode() != "follower" {
			t.Fatal("the follower has noticed: the test shows nothing")
		}
		loss := backendtest.Receive(t, k.Lost(), "the loss")
		if loss.End > now {
			t.Errorf("ttl %v: the next one got in %v before the deadline", ttl, loss.End.Sub(now))
		}
		t.Logf("ttl %v: the deadline was %v before the next one got in", ttl, now.Sub(loss.End))
		e.Mend(follower, leader)
		backendtest.Eventually(t, "the follower is back", func() bool { return follower.Mode() == "follower" })
		backendtest.MustRelease(t, second)
		if err := h.Release(t.Context(), 0); !errors.Is(err, backend.ErrLost) {
			t.Errorf("release of what was lost: %v", err)
		}
	}
}

// TestLeaderDies: holds, lines and detached holds survive an election.
func TestLeaderDies(t *testing.T) {
	e := zktest.StartEnsemble(t, 3)
	leader := e.Leader(t)
	b := func() backend.Backend { return dial(t, e.URL()+"/x") }
	h := backendtest.MustAcquire(t, b(), exclusive(10*time.Second))
	k := keep(t, h)
	next := backendtest.Wait(t, b(), exclusive(10*time.Second))
	ttl := 4 * time.Second
	req := backendtest.Detached(exclusive(ttl), ttl)
	req.Name = "detached"
	d := backendtest.MustAcquire(t, b(), req)
	req = exclusive(10 * time.Second)
	req.Name = "detached"
	behind := backendtest.Wait(t, b(), req)

	leader.Kill()
	before := k.Lease()
	backendtest.Eventually(t, "a renewal", func() bool {
		select {
		case loss := <-k.Lost():
			t.Fatalf("lost: %+v", loss)
		default:
		}
		return k.Lease().Sent > before.Sent && e.Leader(t) != leader
	})
	next.StillWaits(t)
	// Two machines' clocks are not compared: the lease has to pass once more as a whole.
	second := behind.Hold(t)
	if early := d.Grant().Lease.Deadline().Sub(boottime.Now()); early > 0 {
		t.Errorf("a detached hold was evicted %v before its deadline", early)
	}
	backendtest.MustRelease(t, second)
	backendtest.MustRelease(t, h)
	backendtest.MustRelease(t, next.Hold(t))
}
