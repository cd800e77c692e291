package consul

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
)

// errGate means that somebody who is not before us in line has the lock.
var errGate = errors.New("the gate is closed")

// step is a change of the gate that is to be made in one transaction.
type step struct {
	ops  []*api.KVTxnOp
	made *session // for the step; useless if it is refused
	ends []string // sessions that nothing needs once it is done

	dirty bool // those sessions are to end uncleanly, one after the other
}

// do makes the step. It reports false if something has changed since the view was seen,
// or if a lock-delay stands in the way.
func (b *Backend) do(ctx context.Context, s step) (result, error) {
	r, err := b.txn(ctx, s.ops...)
	if err == nil && r.ok {
		for _, id := range s.ends {
			_ = b.destroySession(ctx, id) // else it ends by itself
		}
	} else if err == nil && s.made != nil {
		_ = b.destroySession(ctx, s.made.id)
	}
	return r, err
}

// enter is how a session passes the gate. It fails with errGate if it must wait for
// others than those in line.
func (b *Backend) enter(ctx context.Context, v *view, s *session, rec record) (step, error) {
	switch rec.Mode.Kind {
	case backend.Shared:
		return b.enterShared(ctx, v, s, rec)
	case backend.Slots:
		return b.enterSlots(v, s, rec)
	}
	ops, err := v.open(s)
	return step{ops: append(ops, sessionOp(api.KVLock, v.keys.lock(), s.id, rec))}, err
}

// open are the steps that make sure that nobody has .lock, nor holds a slot.
func (v *view) open(s *session) ([]*api.KVTxnOp, error) {
	if v.lock == nil {
		return []*api.KVTxnOp{bare(api.KVCheckNotExists, v.keys.lock(), 0)}, nil
	}
	dead, live := v.slots()
	if v.lock.Session != "" || live > 0 {
		return nil, errGate
	}
	return append(v.settle(s, dead), bare(api.KVCheckIndex, v.keys.lock(), v.lock.ModifyIndex)), nil
}

// settle are steps that succeed when the lock-delays of slots whose sessions have ended
// are over: the server refuses to lock their keys until then.
func (v *view) settle(s *session, dead []string) (ops []*api.KVTxnOp) {
	for _, id := range dead {
		ops = append(ops, sessionOp(api.KVLock, v.keys.contender(id), s.id, nil), bare(api.KVDelete, v.keys.contender(id), 0))
	}
	return ops
}

func (b *Backend) enterShared(ctx context.Context, v *view, s *session, rec record) (step, error) {
	g := group{Shared: true, Members: map[string]member{}}
	if v.group != nil {
		g = *v.group
		g.Members = maps.Clone(g.Members)
		v.prune(&g)
	}
	if g.Ended {
		return step{}, errGate
	}
	g.Members[rec.Token] = member{s.ttl.Milliseconds(), s.delay.Milliseconds()}
	return b.regroup(ctx, v, s, g)
}

// prune forgets the members that have ended uncleanly, but for the lock-delay due to them.
func (v *view) prune(g *group) {
	for token, m := range g.Members {
		if v.find(token) == nil {
			delete(g.Members, token)
			g.Settle = max(g.Settle, m.Delay)
		}
	}
}

// regroup writes the group, with a session that is what its members want.
func (b *Backend) regroup(ctx context.Context, v *view, s *session, g group) (step, error) {
	ttl, delay := g.wants()
	lock := v.keys.lock()
	if v.group != nil && g.TTL == ttl.Milliseconds() && g.Delay == delay.Milliseconds() {
		return step{ops: []*api.KVTxnOp{op(api.KVCAS, lock, g, v.lock.ModifyIndex)}}, nil
	}
	var st step
	if v.group != nil {
		st.ops = []*api.KVTxnOp{bare(api.KVCheckIndex, lock, v.lock.ModifyIndex), sessionOp(api.KVUnlock, lock, v.lock.Session, g)}
		st.ends = []string{v.lock.Session}
	} else {
		ops, err := v.open(s)
		if err != nil {
			return st, err
		}
		st.ops = ops
	}
	made, err := b.newSession(ctx, v.keys.name+" (shared)", ttl, delay)
	if err != nil {
		return st, err
	}
	g.TTL, g.Delay, st.made = ttl.Milliseconds(), delay.Milliseconds(), made
	st.ops = append(st.ops, sessionOp(api.KVLock, lock, made.id, g))
	return st, nil
}

func (b *Backend) enterSlots(v *view, s *session, rec record) (step, error) {
	sem := semaphore{Limit: rec.Mode.N, Holders: map[string]bool{}}
	if v.lock != nil && v.lock.Session != "" {
		return step{}, errGate
	}
	dead, live := v.slots()
	switch {
	case v.sem == nil:
	case v.sem.Limit != rec.Mode.N && live > 0:
		return step{}, fmt.Errorf("%w: %d slots asked for, but the lock has %d now", backend.ErrInvalid, rec.Mode.N, v.sem.Limit)
	case v.sem.Limit == rec.Mode.N && live >= rec.Mode.N:
		return step{}, errGate
	case v.sem.Limit == rec.Mode.N:
		sem.Holders = v.clone()
		dead = dead[:min(len(dead), max(0, live+len(dead)+1-rec.Mode.N))] // no more than there is need for
	}
	for _, id := range dead {
		delete(sem.Holders, id)
	}
	sem.Holders[s.id] = true
	contender := sessionOp(api.KVLock, v.keys.contender(s.id), s.id, nil)
	contender.Flags = api.SemaphoreFlagValue
	ops := append(v.settle(s, dead), contender)
	if v.sem != nil {
		return step{ops: append(ops, op(api.KVCAS, v.keys.lock(), sem, v.lock.ModifyIndex))}, nil
	}
	// Whoever had .lock before, alone or with a group, may be dying: only a step that
	// locks it is refused until the lock-delay is over.
	check := bare(api.KVCheckNotExists, v.keys.lock(), 0)
	if v.lock != nil {
		check = bare(api.KVCheckIndex, v.keys.lock(), v.lock.ModifyIndex)
	}
	return step{ops: append(ops, append([]*api.KVTxnOp{check}, sessionOp(api.KVLock, v.keys.lock(), s.id, sem), sessionOp(api.KVUnlock, v.keys.lock(), s.id, sem))...)}, nil
}

// clone is the holders of the semaphore, those that are none left out.
func (v *view) clone() map[string]bool {
	m := map[string]bool{}
	for id, in := range v.sem.Holders {
		if in {
			m[id] = true
		}
	}
	return m
}

// exit is how a holder leaves cleanly, so that no lock-delay follows.
func (b *Backend) exit(ctx context.Context, v *view, e *entry) (st step, err error) {
	lock := v.keys.lock()
	switch e.rec.Mode.Kind {
	case backend.Exclusive:
		st.ops = []*api.KVTxnOp{sessionOp(api.KVCheckSession, lock, e.session, nil), bare(api.KVDelete, lock, 0)}
	case backend.Shared:
		if st, err = b.exitShared(ctx, v, e); st.dirty {
			return st, nil
		}
	case backend.Slots:
		holders := v.clone()
		delete(holders, e.session)
		change := op(api.KVCAS, lock, semaphore{v.sem.Limit, holders}, v.lock.ModifyIndex)
		if len(holders) == 0 {
			change = bare(api.KVDeleteCAS, lock, v.lock.ModifyIndex)
		}
		st.ops = []*api.KVTxnOp{change, bare(api.KVDelete, v.keys.contender(e.session), 0)}
	}
	st.ops = append(st.ops, sessionOp(api.KVCheckSession, e.pair.Key, e.session, nil), bare(api.KVDelete, e.pair.Key, 0))
	st.ends = append(st.ends, e.session)
	return st, err
}

// exitShared leaves the group. The last one frees the lock: at once, or with the
// lock-delay if another member has ended uncleanly.
func (b *Backend) exitShared(ctx context.Context, v *view, e *entry) (step, error) {
	g := *v.group
	g.Members = maps.Clone(g.Members)
	delete(g.Members, e.token)
	v.prune(&g)
	lock := v.keys.lock()
	switch {
	case len(g.Members) > 0:
		return b.regroup(ctx, v, nil, g)
	case g.Settle > 0:
		// The key in the line stays until the group's session is gone: Consul looks at the
		// lock-delay before it puts a request in order, so nobody may be woken earlier.
		g.Ended = true
		return step{dirty: true, ops: []*api.KVTxnOp{
			sessionOp(api.KVCheckSession, e.pair.Key, e.session, nil), op(api.KVCAS, lock, g, v.lock.ModifyIndex),
		}, ends: []string{v.lock.Session, e.session}}, nil
	}
	return step{ops: []*api.KVTxnOp{bare(api.KVDeleteCAS, lock, v.lock.ModifyIndex)}, ends: []string{v.lock.Session}}, nil
}

// pass is how a hold passes from its session to another one, with a new record.
func (b *Backend) pass(ctx context.Context, v *view, e *entry, to *session, rec record) (st step, err error) {
	rec.Fence, rec.TTL, rec.Delay = v.fence(e), to.ttl.Milliseconds(), to.delay.Milliseconds()
	lock := v.keys.lock()
	switch e.rec.Mode.Kind {
	case backend.Exclusive:
		st.ops = swap(lock, e.session, to.id, rec)
	case backend.Shared:
		g := *v.group
		g.Members = maps.Clone(g.Members)
		g.Members[e.token] = member{rec.TTL, rec.Delay}
		st, err = b.regroup(ctx, v, nil, g)
	case backend.Slots:
		holders := v.clone()
		delete(holders, e.session)
		holders[to.id] = true
		contender := sessionOp(api.KVLock, v.keys.contender(to.id), to.id, nil)
		contender.Flags = api.SemaphoreFlagValue
		st.ops = []*api.KVTxnOp{
			op(api.KVCAS, lock, semaphore{v.sem.Limit, holders}, v.lock.ModifyIndex),
			bare(api.KVDelete, v.keys.contender(e.session), 0), contender,
		}
	}
	st.ops = append(st.ops, swap(e.pair.Key, e.session, to.id, rec)...)
	st.ends = append(st.ends, e.session)
	return st, err
}

// swap are the steps by which a key goes from one session to another.
func swap(key, from, to string, rec record) []*api.KVTxnOp {
	return []*api.KVTxnOp{sessionOp(api.KVUnlock, key, from, rec), sessionOp(api.KVLock, key, to, rec)}
}
