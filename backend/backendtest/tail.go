package backendtest

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
)

func tailEnds(t *testing.T, e *env) {
	h := e.acquire(t, Request("j", Exclusive))
	if err := h.Release(t.Context(), 2*time.Second); err != nil {
		t.Fatalf("release with a tail: %v", err)
	}
	mustBeTail(t, e.busy(t, Request("j", Exclusive)))
	mustBeGone(t, h)
	mustNotAttach(t, e, "j", h.Grant().Token, backend.ErrLost)
	MustRelease(t, e.acquire(t, Request("j", Exclusive))) // after the tail
}

func mustBeTail(t *testing.T, busy *backend.BusyError) {
	t.Helper()
	if len(busy.Holders) != 1 {
		t.Fatalf("busy names %+v, want a tail", busy.Holders)
	}
	if h := busy.Holders[0]; !h.Tail || !h.Leased || h.Left <= 0 {
		t.Errorf("busy names %+v, want a tail that ends", h)
	}
}

func tailIsBusy(t *testing.T, e *env) {
	impatient := func() backend.Request {
		req := Request("j", Exclusive)
		req.TailIsBusy = true
		return req
	}
	h := e.acquire(t, impatient())
	early := e.wait(t, impatient(), 1)
	if err := h.Release(t.Context(), time.Hour); err != nil {
		t.Fatalf("release with a tail: %v", err)
	}
	late := Acquire(t, e.client(t), impatient())
	for _, w := range []*Waiter{early, late} {
		busy, ok := errors.AsType[*backend.BusyError](w.Err(t))
		if !ok {
			t.Fatal("a tail that counts as busy was waited for")
		}
		mustBeTail(t, busy)
	}
	e.lineIsEmpty(t)
	// A tail keeps nobody's command from anything: it may be revoked.
	if _, err := e.client(t).Revoke(t.Context(), "j", h.Grant().Token, false); err != nil {
		t.Errorf("revoke of a tail: %v", err)
	}
	e.free(t, impatient())
}
