package consul

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/line"
)

// view is all that is known of one lock at one moment.
type view struct {
	keys       keys
	entries    []*entry // the line; who holds is in it, too
	lock       *api.KVPair
	rec        *record    // of .lock, if a dlock has it alone
	group      *group     // of .lock, if shared holds have it
	sem        *semaphore // of .lock, if it is one
	contenders map[string]*api.KVPair
}

// entry is a contender's key in the line.
type entry struct {
	token   string
	session string
	pair    *api.KVPair
	rec     record
}

// look reads a lock.
func (b *Backend) look(ctx context.Context, k keys) (*view, error) {
	r, err := b.txn(ctx, bare(api.KVGetTree, k.line, 0), bare(api.KVGetTree, k.gate, 0))
	if err != nil {
		return nil, err
	}
	return newView(k, r.pairs), nil
}

// newView sorts out the keys of a lock.
func newView(k keys, pairs []*api.KVPair) *view {
	v := &view{keys: k, contenders: map[string]*api.KVPair{}}
	for _, p := range pairs {
		if place, ok := strings.CutPrefix(p.Key, k.line); ok {
			e := &entry{session: p.Session, pair: p}
			if json.Unmarshal(p.Value, &e.rec) == nil && e.rec.Token != "" && strings.HasPrefix(place, e.rec.Token) && e.session != "" {
				e.token = e.rec.Token
				v.entries = append(v.entries, e)
			}
			continue
		}
		switch rest, ok := strings.CutPrefix(p.Key, k.gate); {
		case !ok:
		case rest == lockKey:
			v.readLock(p)
		case !strings.Contains(rest, "/") && p.Session == rest && p.Flags == api.SemaphoreFlagValue:
			v.contenders[rest] = p
		}
	}
	slices.SortStableFunc(v.entries, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.pair.CreateIndex, b.pair.CreateIndex), cmp.Compare(a.token, b.token))
	})
	return v
}

// readLock finds out what .lock is.
func (v *view) readLock(p *api.KVPair) {
	v.lock = p
	switch rec, g, sem := (record{}), (group{}), (semaphore{}); {
	case p.Flags == api.SemaphoreFlagValue:
		if json.Unmarshal(p.Value, &sem) != nil {
			sem = semaphore{} // without holders it is nobody's
		}
		v.sem = &sem
	case p.Session == "":
	case json.Unmarshal(p.Value, &g) == nil && g.Shared:
		if g.Members == nil { // it may be anybody's
			g.Members = map[string]member{}
		}
		v.group = &g
	case json.Unmarshal(p.Value, &rec) == nil && rec.Token != "":
		v.rec = &rec
	}
}

// line is the line as package line wants it.
func (v *view) line() []line.Contender {
	var list []line.Contender
	for _, e := range v.entries {
		list = append(list, line.Contender{Mode: e.rec.Mode})
	}
	return list
}

// index finds the place of a token in the line; -1 if it has none.
func (v *view) index(token string) int {
	return slices.IndexFunc(v.entries, func(e *entry) bool { return e.token == token })
}

// find finds the entry of a token, or nil.
func (v *view) find(token string) *entry {
	if i := v.index(token); i >= 0 {
		return v.entries[i]
	}
	return nil
}

// holds tells whether a contender has passed the gate.
func (v *view) holds(e *entry) bool {
	switch e.rec.Mode.Kind {
	case backend.Exclusive:
		return v.rec != nil && v.lock.Session == e.session && v.rec.Token == e.token
	case backend.Shared:
		if v.group == nil || v.group.Ended {
			return false
		}
		_, in := v.group.Members[e.token]
		return in && e.rec.Held
	case backend.Slots:
		return v.sem != nil && v.sem.Holders[e.session] && v.contenders[e.session] != nil && e.rec.Held
	}
	return false
}

// main is the key that tells of a hold's end and of its revocation.
func (v *view) main(e *entry) *api.KVPair {
	if e.rec.Mode.Kind == backend.Exclusive {
		return v.lock
	}
	return e.pair
}

// record is what a holder tells of itself.
func (v *view) record(e *entry) record {
	if e.rec.Mode.Kind == backend.Exclusive && v.rec != nil {
		return *v.rec
	}
	return e.rec
}

func (v *view) fence(e *entry) uint64 {
	if f := v.record(e).Fence; f != 0 {
		return f
	}
	return v.main(e).ModifyIndex
}

// slots lists the holders of the semaphore whose sessions have ended, and counts the others.
func (v *view) slots() (dead []string, live int) {
	if v.sem == nil {
		return nil, 0
	}
	for id, in := range v.sem.Holders {
		switch {
		case !in:
		case v.contenders[id] == nil:
			dead = append(dead, id)
		default:
			live++
		}
	}
	slices.Sort(dead)
	return dead, live
}

// holders lists who has the lock: dlocks, other programs, and what they have left behind.
func (v *view) holders() (list []backend.Holder) {
	known := map[string]bool{}
	for _, e := range v.entries {
		if v.holds(e) {
			list = append(list, v.show(e))
			known[e.session] = true
		}
	}
	foreign := func(mode backend.Mode, what string) {
		list = append(list, backend.Holder{Owner: backend.Owner{Kind: backend.Foreign, Reason: what}, Mode: mode, Held: -1})
	}
	const crashed = "it ended without releasing; Consul frees the lock after its TTL and lock-delay"
	switch {
	case v.lock == nil:
	case v.sem != nil:
		mode := backend.Mode{Kind: backend.Slots, N: max(1, v.sem.Limit)}
		for id := range v.sem.Holders {
			switch {
			case !v.sem.Holders[id] || known[id]:
			case v.contenders[id] == nil:
				foreign(mode, crashed)
			default:
				foreign(mode, "session "+id)
			}
		}
	case v.lock.Session == "", len(list) > 0:
	case v.group != nil:
		foreign(backend.Mode{Kind: backend.Shared}, crashed)
	default:
		foreign(backend.Mode{Kind: backend.Exclusive}, "session "+v.lock.Session)
	}
	return list
}

// show is a dlock that holds the lock.
func (v *view) show(e *entry) backend.Holder {
	rec, now := v.record(e), wallMillis()
	h := backend.Holder{
		Token: e.token, Owner: rec.Owner, Mode: rec.Mode, Fence: v.fence(e), Revoked: rec.Revoked, Tail: rec.Tail,
		Held: max(0, backend.Millis(now-rec.Since)), Leased: true, Left: rec.ttl(),
	}
	if rec.Until != 0 { // by the clock of whoever wrote it
		h.Left = backend.Millis(rec.Until - now)
		h.Left = max(time.Millisecond, min(h.Left, 2*rec.ttl()))
	}
	return h
}

// holder finds the one holder whose token begins with prefix.
func (v *view) holder(prefix string) (*entry, error) {
	var found *entry
	for _, e := range v.entries {
		if !v.holds(e) || !strings.HasPrefix(e.token, prefix) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%w: several holders' tokens begin so", backend.ErrInvalid)
		}
		found = e
	}
	if found != nil {
		return found, nil
	}
	for _, h := range v.holders() {
		if h.Token == "" {
			return nil, fmt.Errorf("%w: another program holds this lock, and dlock does not end its hold; its session can be ended with consul (%s)",
				backend.ErrUnsupported, h.Owner.Reason)
		}
	}
	return nil, backend.ErrLost
}

// status is what inspect shows.
func (v *view) status() backend.Status {
	s := backend.Status{Name: v.keys.name, Holders: v.holders()}
	for _, h := range s.Holders {
		s.Fence = max(s.Fence, h.Fence)
	}
	now := wallMillis()
	for _, e := range v.entries {
		if !v.holds(e) {
			s.Waiters = append(s.Waiters, backend.Waiter{
				Owner: e.rec.Owner, Mode: e.rec.Mode, Waiting: max(0, backend.Millis(now-e.rec.Since)),
			})
		}
	}
	return s
}
