package backendtest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

func limitsMakeSense(t *testing.T, e *env) {
	l := e.limits
	if l.Kind == "" || l.Address == "" {
		t.Errorf("limits %+v do not say what and where the service is", l)
	}
	if l.MinTTL < time.Second || l.MinTTL > 30*time.Second || l.MaxTTL < 24*time.Hour {
		t.Errorf("leases last from %v to %v; want 1s or a little more to a day or more", l.MinTTL, l.MaxTTL)
	}
}

func impossibleRequestsAreRefused(t *testing.T, e *env) {
	b := e.client(t)
	for what, spoil := range map[string]func(*backend.Request){
		"no token":            func(r *backend.Request) { r.Token = "" },
		"a blank token":       func(r *backend.Request) { r.Token = " " },
		"a path as token":     func(r *backend.Request) { r.Token = "../../x" },
		"two lines as token":  func(r *backend.Request) { r.Token += "\n" },
		"a token in capitals": func(r *backend.Request) { r.Token = strings.ToUpper("x" + r.Token) },
		"no mode":             func(r *backend.Request) { r.Mode = backend.Mode{} },
		"no slots":            func(r *backend.Request) { r.Mode = Slots(0) },
		"slots below zero":    func(r *backend.Request) { r.Mode = Slots(-1) },
		"shared slots":        func(r *backend.Request) { r.Mode = backend.Mode{Kind: backend.Shared, N: 2} },
		"an unknown mode":     func(r *backend.Request) { r.Mode.Kind = "weird" },
	} {
		req := NoWait(Request("j", Exclusive))
		spoil(&req)
		_, err := b.Acquire(t.Context(), req)
		mustBe(t, what, err, backend.ErrInvalid)
	}
	for _, name := range []string{"", "a\nb", "a\x00", "\xff", strings.Repeat("x", backend.MaxName+1), strings.Repeat("x", 5000)} {
		impossibleName(t, b, name)
	}
	e.free(t, Request("j", Exclusive))
}

func impossibleName(t *testing.T, b backend.Backend, name string) {
	req := Request(name, Exclusive)
	_, err := b.Acquire(t.Context(), NoWait(req))
	mustBe(t, "acquire an impossible name", err, backend.ErrInvalid)
	_, err = b.Attach(t.Context(), name, req.Token, 0)
	mustBe(t, "attach to an impossible name", err, backend.ErrInvalid)
	_, err = b.Revoke(t.Context(), name, req.Token, false)
	mustBe(t, "revoke of an impossible name", err, backend.ErrInvalid)
	_, err = b.Inspect(t.Context(), name)
	mustBe(t, "inspect an impossible name", err, backend.ErrInvalid)
}

// repeatedRequest: an answer may get lost, and then the request is sent again.
func repeatedRequest(t *testing.T, e *env) {
	for _, owned := range e.owned() {
		t.Run(owned.name, func(t *testing.T) {
			req := owned.apply(Request(owned.name, Shared))
			first := e.acquire(t, req)
			if !req.Detached && e.limits.NoDeadline {
				// The kernel's lock cannot be had twice; the try must not spoil the hold.
				e.busy(t, req)
			} else if again := e.acquire(t, NoWait(req)); again.Grant().Fence < first.Grant().Fence {
				// Several servers may know a larger one by now, which nobody else was given.
				t.Errorf("fence %d became %d", first.Grant().Fence, again.Grant().Fence)
			}
			if n := len(InspectOne(t, e.client(t), req.Name).Holders); n != 1 {
				t.Errorf("%d holders, want 1", n)
			}
			if _, err := first.Renew(t.Context()); err != nil {
				t.Errorf("renew: %v", err)
			}
			MustRelease(t, first)
			e.free(t, Request(req.Name, Exclusive))
		})
	}
}

func secondRelease(t *testing.T, e *env) {
	for _, owned := range e.owned() {
		t.Run(owned.name, func(t *testing.T) {
			first := e.acquire(t, owned.apply(Request(owned.name, Exclusive)))
			MustRelease(t, first)
			mustBeGone(t, first)
			second := e.acquire(t, NoWait(Request(owned.name, Exclusive)))
			mustBeGone(t, first)
			e.busy(t, Request(owned.name, Exclusive)) // nobody was harmed
			MustRelease(t, second)
		})
	}
}

// mustBeGone checks that the hold can do nothing any more.
func mustBeGone(t *testing.T, h backend.Hold) {
	t.Helper()
	_, err := h.Renew(t.Context())
	mustBe(t, "renewal of what is no longer held", err, backend.ErrLost)
	mustBe(t, "release of what is no longer held", h.Release(t.Context(), 0), backend.ErrLost)
}

func fencesGrow(t *testing.T, e *env) {
	var last uint64
	for _, mode := range []backend.Mode{Exclusive, Shared, Slots(2), Exclusive} {
		holds := []backend.Hold{e.acquire(t, Request("j", mode))}
		if mode != Exclusive {
			holds = append(holds, e.acquire(t, Request("j", mode)))
		}
		for _, h := range holds {
			if f := h.Grant().Fence; f <= last {
				t.Errorf("%v: fence %d after %d", mode, f, last)
			} else {
				last = f
			}
			MustRelease(t, h)
		}
	}
}

func leases(t *testing.T, e *env) {
	for _, owned := range e.owned() {
		t.Run(owned.name, func(t *testing.T) {
			req := owned.apply(Request(owned.name, Exclusive))
			before := boottime.Now()
			h := e.acquire(t, req)
			e.checkLease(t, req, h.Grant().Lease, before)
			before = boottime.Now()
			renewed, err := h.Renew(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			e.checkLease(t, req, renewed, before)
			MustRelease(t, h)
		})
	}
}

// checkLease checks the lease of a request that was sent after before.
func (e *env) checkLease(t *testing.T, req backend.Request, l backend.Lease, before boottime.Instant) {
	t.Helper()
	if ends := req.Detached || !e.limits.NoDeadline; l.Ends() != ends {
		t.Errorf("lease %+v ends: %v, want %v", l, l.Ends(), ends)
	}
	if l.Sent < before || l.Sent > boottime.Now() {
		t.Errorf("sent at %d, not between %d and now", l.Sent, before)
	}
	if l.TTL > req.TTL || l.Every <= 0 || l.Every > req.TTL/3 {
		t.Errorf("lease of %v, renewed every %v; %v was asked for", l.TTL, l.Every, req.TTL)
	}
}

func detachedIsRefused(t *testing.T, e *env) {
	_, err := e.client(t).Acquire(t.Context(), NoWait(Detached(Request("j", Exclusive), time.Minute)))
	mustBe(t, "a detached hold", err, backend.ErrUnsupported)
	if errors.Is(err, backend.ErrUnsupported) {
		e.free(t, Request("j", Exclusive))
	}
}
