package backendtest

import (
	"testing"

	"github.com/dlock/dlock/backend"
)

// forgetUnused is for a service that can forget; where there is nothing to remember, none
// needs to.
func forgetUnused(t *testing.T, e *env) {
	f, ok := e.client(t).(backend.Forgetter)
	if !ok {
		return
	}
	mustForget := func(name string) {
		t.Helper()
		if err := f.Forget(t.Context(), name); err != nil {
			t.Fatalf("forget: %v", err)
		}
	}
	mustForget("j") // which never was
	h := e.acquire(t, Request("j", Exclusive))
	mustBe(t, "forget a held lock", f.Forget(t.Context(), "j"), backend.ErrInvalid)
	if _, err := h.Renew(t.Context()); err != nil {
		t.Errorf("renewal after it: %v", err)
	}
	w := e.wait(t, Request("j", Exclusive), 1)
	mustBe(t, "forget a lock with a waiter", f.Forget(t.Context(), "j"), backend.ErrInvalid)
	MustRelease(t, h)
	MustRelease(t, w.Hold(t))
	mustForget("j")
	if s := InspectOne(t, e.client(t), "j"); s.Fence != 0 || len(s.Holders) > 0 || len(s.Problems) > 0 {
		t.Errorf("what is left: %+v", s)
	}
	e.free(t, Request("j", Exclusive))
}
