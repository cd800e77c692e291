package backendtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
)

// odd is text that breaks what is not quoted with care.
const odd = `a  b 'c' "d" \n $HOME %s %00 {e} {{f}} <g>&` + "\t\n\r\x01\x1b[31m\x7f\u0085 é 日本 🔒 \u202e,;:|*?#[]~` "

// oddOwner is this process with all that an owner can tell.
func oddOwner(kind backend.OwnerKind) backend.Owner {
	o := Request("j", Exclusive).Owner
	o.Kind = kind
	o.User, o.Host, o.PIDNS = "u "+odd, "h "+odd, "pid:[4026531836]"
	o.Command, o.Reason = strings.Repeat("x", 300)+odd, odd+strings.Repeat("é", 150)
	return o
}

func inspectHolders(t *testing.T, e *env) {
	for _, owned := range e.owned() {
		for _, mode := range []backend.Mode{Exclusive, Shared, Slots(3)} {
			req := owned.apply(Request("j", mode))
			req.Owner = oddOwner(req.Owner.Kind)
			h := e.acquire(t, req)
			s := InspectOne(t, e.client(t), "j")
			if len(s.Holders) != 1 || len(s.Waiters) != 0 || len(s.Problems) != 0 || s.Fence != h.Grant().Fence {
				t.Errorf("inspect: %+v, want the one holder, and fence %d", s, h.Grant().Fence)
			}
			for _, shown := range s.Holders {
				e.checkHolder(t, shown, req, h.Grant())
			}
			MustRelease(t, h)
		}
	}
}

func (e *env) checkHolder(t *testing.T, shown backend.Holder, req backend.Request, grant backend.Grant) {
	t.Helper()
	if shown.Owner != req.Owner {
		t.Errorf("owner\n%#v, want\n%#v", shown.Owner, req.Owner)
	}
	if shown.Token != grant.Token || shown.Fence != grant.Fence || shown.Mode != req.Mode {
		t.Errorf("holder %+v of %v, want %+v", shown, req.Mode, grant)
	}
	if shown.Held < 0 || shown.Revoked || shown.Tail {
		t.Errorf("holder %+v, want a known age and nothing odd", shown)
	}
	if leased := req.Detached || !e.limits.NoDeadline; shown.Leased != leased || leased && (shown.Left <= 0 || shown.Left > req.TTL) {
		t.Errorf("leased %v, left %v of %v", shown.Leased, shown.Left, req.TTL)
	}
}

func inspectWaiters(t *testing.T, e *env) {
	h := e.acquire(t, Request("j", Exclusive))
	modes := []backend.Mode{Shared, Exclusive, Slots(2)}
	var owners []backend.Owner
	var waiters []*Waiter
	for i, mode := range modes {
		req := Request("j", mode)
		req.Owner = oddOwner(backend.Run)
		req.Owner.Reason = strings.Repeat("i", i)
		owners = append(owners, req.Owner)
		waiters = append(waiters, e.wait(t, req, i+1))
	}
	shown := InspectOne(t, e.client(t), "j").Waiters
	for i, w := range shown {
		if w.Owner != owners[i] || w.Mode != modes[i] || w.Waiting < 0 {
			t.Errorf("waiter %d: %+v, want %v, %+v", i, w, modes[i], owners[i])
		}
	}
	older := func(a, b backend.Waiter) int { return int(b.Waiting - a.Waiting) }
	if !slices.IsSortedFunc(shown, older) {
		t.Errorf("waiters %+v, want the oldest first", shown)
	}
	MustRelease(t, h)
	for _, w := range waiters {
		MustRelease(t, w.Hold(t))
	}
}

func inspectFree(t *testing.T, e *env) {
	b := e.client(t)
	isFree := func() {
		t.Helper()
		if s := InspectOne(t, b, "j"); len(s.Holders)+len(s.Waiters)+len(s.Problems) != 0 {
			t.Errorf("a free lock is shown as %+v", s)
		}
	}
	isFree()
	if list, err := b.Inspect(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("inspect of nothing: %+v, %v", list, err)
	}
	e.free(t, Request("j", Exclusive))
	isFree()
}

func inspectLists(t *testing.T, e *env) {
	b := e.client(t)
	names := []string{"c", "a", "b/b"}
	for _, name := range names {
		defer MustRelease(t, e.acquire(t, Request(name, Exclusive)))
	}
	list, err := b.Inspect(t.Context(), names...)
	if got := namesOf(list); err != nil || !slices.Equal(got, names) {
		t.Errorf("inspect of %q: %q, %v", names, got, err)
	}
	list, err = b.Inspect(t.Context())
	if got := sorted(namesOf(list)); err != nil || !slices.Equal(got, sorted(names)) {
		t.Errorf("inspect of all: %q, %v; want %q", got, err, names)
	}
}

func namesOf(list []backend.Status) []string {
	var names []string
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

func sorted(names []string) []string { return slices.Sorted(slices.Values(names)) }
