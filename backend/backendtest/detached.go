package backendtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
)

// detachedEnds: nobody renews, so a waiter gets in, and who comes late harms nobody.
func detachedEnds(t *testing.T, e *env) {
	req := e.shortest(Request("j", Exclusive))
	first := e.acquire(t, req)
	second := e.acquire(t, Request("j", Exclusive))
	if second.Grant().Fence <= first.Grant().Fence {
		t.Errorf("fence went from %d to %d", first.Grant().Fence, second.Grant().Fence)
	}
	mustBeGone(t, first)
	mustNotAttach(t, e, req.Name, first.Grant().Token, backend.ErrLost)
	e.busy(t, Request("j", Exclusive))
	MustRelease(t, second)
}

func detachedIsRenewed(t *testing.T, e *env) {
	req := Detached(Request("j", Exclusive), time.Hour)
	first := e.acquire(t, req)
	for _, tt := range []struct{ ttl, least time.Duration }{
		{2 * time.Hour, 90 * time.Minute},
		{0, 90 * time.Minute},
		{time.Minute, 80 * time.Minute}, // a renewal never shortens
	} {
		h := e.attach(t, req.Name, first, tt.ttl)
		if h.Grant().Fence != first.Grant().Fence || h.Grant().Token != first.Grant().Token {
			t.Errorf("attached to %+v, want %+v", h.Grant(), first.Grant())
		}
		lease, err := h.Renew(t.Context())
		if err != nil || !lease.Ends() || lease.TTL < tt.ttl {
			t.Errorf("renewal for %v: %v, %v", tt.ttl, lease.TTL, err)
		}
		if left := InspectOne(t, e.client(t), "j").Holders[0].Left; left < tt.least {
			t.Errorf("after a renewal for %v %v are left, want %v at least", tt.ttl, left, tt.least)
		}
	}
	MustRelease(t, first)
}

func (e *env) attach(t *testing.T, name string, held backend.Hold, ttl time.Duration) backend.Hold {
	t.Helper()
	h, err := e.client(t).Attach(t.Context(), name, held.Grant().Token, ttl)
	if err != nil {
		t.Fatalf("attach: %v", err)
	}
	return h
}

func mustNotAttach(t *testing.T, e *env, name, token string, want error) {
	t.Helper()
	_, err := e.client(t).Attach(t.Context(), name, token, 0)
	mustBe(t, fmt.Sprintf("attach with token %q", token), err, want)
}

func detachedIsReleased(t *testing.T, e *env) {
	first := e.acquire(t, Detached(Request("j", Exclusive), time.Hour))
	next := e.wait(t, Request("j", Exclusive), 1)
	MustRelease(t, e.attach(t, "j", first, 0))
	second := next.Hold(t)
	mustBeGone(t, first)
	mustNotAttach(t, e, "j", first.Grant().Token, backend.ErrLost)
	e.busy(t, Request("j", Exclusive))
	MustRelease(t, second)
}

func detachedIsRevoked(t *testing.T, e *env) {
	for _, now := range []bool{false, true} {
		first := e.acquire(t, Detached(Request("j", Exclusive), time.Hour))
		next := e.wait(t, Request("j", Exclusive), 1)
		holder, err := e.client(t).Revoke(t.Context(), "j", first.Grant().Token[:8], now)
		if err != nil || holder.Token != first.Grant().Token || holder.Owner.Kind != backend.Detached {
			t.Fatalf("revoke: %+v, %v", holder, err)
		}
		second := next.Hold(t)
		mustBeGone(t, first)
		MustRelease(t, second)
	}
}

func detachedLeavesATail(t *testing.T, e *env) {
	first := e.acquire(t, Detached(Request("j", Exclusive), time.Hour))
	if err := e.attach(t, "j", first, 0).Release(t.Context(), time.Hour); err != nil {
		t.Fatalf("release with a tail: %v", err)
	}
	mustBeTail(t, e.busy(t, Request("j", Exclusive)))
	mustBeGone(t, first)
	mustNotAttach(t, e, "j", first.Grant().Token, backend.ErrLost)
}

func attachRefuses(t *testing.T, e *env) {
	h := e.acquire(t, Request("j", Exclusive))
	token := h.Grant().Token
	mustNotAttach(t, e, "j", token, backend.ErrRunning)
	other := Request("j", Exclusive).Token
	for _, odd := range []string{
		other, "nobody", "", " ", "../../x", "*", token[:8], token + " ", " " + token, token + "\n", strings.ToUpper("x" + token), strings.Repeat("x", 5000),
	} {
		mustNotAttach(t, e, "j", odd, backend.ErrLost)
	}
	mustNotAttach(t, e, "never locked", token, backend.ErrLost)
	if _, err := h.Renew(t.Context()); err != nil {
		t.Errorf("renew: %v", err)
	}
	MustRelease(t, h)
	mustNotAttach(t, e, "j", token, backend.ErrLost)
}
