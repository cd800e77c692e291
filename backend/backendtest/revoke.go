package backendtest

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
)

func revokeRun(t *testing.T, e *env) {
	h := e.acquire(t, Request("j", Exclusive))
	lost := h.Lost()
	for range 2 { // the second changes nothing
		holder, err := e.client(t).Revoke(t.Context(), "j", h.Grant().Token[:8], false)
		if err != nil || holder.Token != h.Grant().Token || holder.Owner.Kind != backend.Run {
			t.Fatalf("revoke: %+v, %v", holder, err)
		}
	}
	if s := InspectOne(t, e.client(t), "j"); len(s.Holders) != 1 || !s.Holders[0].Revoked {
		t.Errorf("holders %+v, want one that is revoked", s.Holders)
	}
	if lost != nil {
		mustBe(t, "notice", Receive(t, lost, "notice of the revocation"), backend.ErrRevoked)
	}
	_, err := h.Renew(t.Context())
	mustBe(t, "renewal of a revoked hold", err, backend.ErrRevoked)
	e.busy(t, Request("j", Exclusive)) // until its run has released
	if err := h.Release(t.Context(), time.Hour); err != nil {
		t.Errorf("release of a revoked hold: %v", err)
	}
	e.free(t, Request("j", Exclusive)) // somebody wants it free: there is no tail
}

func revokeRunNow(t *testing.T, e *env) {
	h := e.acquire(t, Request("j", Exclusive))
	_, err := e.client(t).Revoke(t.Context(), "j", h.Grant().Token, true)
	if errors.Is(err, backend.ErrUnsupported) {
		if _, err := h.Renew(t.Context()); err != nil {
			t.Errorf("a refused revocation changed something: %v", err)
		}
		e.busy(t, Request("j", Exclusive))
		MustRelease(t, h)
		return
	}
	if err != nil {
		t.Fatalf("revoke: %v", err)
	}
	second := e.acquire(t, NoWait(Request("j", Exclusive)))
	mustBeGone(t, h)
	e.busy(t, Request("j", Exclusive))
	MustRelease(t, second)
}

func revokeFindsOne(t *testing.T, e *env) {
	revoke := func(name, prefix string) error {
		_, err := e.client(t).Revoke(t.Context(), name, prefix, false)
		return err
	}
	mustBe(t, "revoke of a lock that never was", revoke("j", "abc"), backend.ErrLost)
	one, two := Request("j", Shared), Request("j", Shared)
	two.Token = one.Token[:24] + two.Token[24:] // still a UUID
	h1, h2 := e.acquire(t, one), e.acquire(t, two)
	mustBe(t, "revoke of nothing", revoke("j", ""), backend.ErrInvalid)
	mustBe(t, "revoke of a stranger", revoke("j", Request("j", Shared).Token), backend.ErrLost)
	mustBe(t, "revoke by a pattern", revoke("j", "*"), backend.ErrLost)
	mustBe(t, "revoke elsewhere", revoke("k", one.Token), backend.ErrLost)
	if commonPrefix := one.Token[:8]; h1.Grant().Token == one.Token { // tokens are ours
		mustBe(t, "revoke of two", revoke("j", commonPrefix), backend.ErrInvalid)
	}
	if err := revoke("j", h2.Grant().Token); err != nil {
		t.Errorf("revoke: %v", err)
	}
	if _, err := h1.Renew(t.Context()); err != nil {
		t.Errorf("the other holder was hit: %v", err)
	}
	_, err := h2.Renew(t.Context())
	mustBe(t, "renewal of a revoked hold", err, backend.ErrRevoked)
	MustRelease(t, h1)
	MustRelease(t, h2)
	mustBe(t, "revoke of what was released", revoke("j", one.Token), backend.ErrLost)
}
