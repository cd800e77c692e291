package consul

import (
	"context"
	"encoding/json"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
)

// A holder that had to wait itself, and so may be waited for, looks once who is behind
// it. It frees the lock and locks it for that one's session in one transaction: a write
// of Consul's costs as much as all the rest of a hand-over, so it is worth saving the
// second. The holder's key in line, which its successor watches, tells that it is done;
// it is the successor's from then on, and ends with its session.

// mostPassed is how often a lock is passed on before it is free for a moment: `consul lock`
// and other programs that do not stand in our line would starve else.
const mostPassed = 10

// passed is what a holder's key in line says once the lock is its successor's.
type passed struct {
	To    string `json:"passed"` // the successor's session
	Times int    `json:"times"`  // that the lock was passed on without having been free

	index uint64 // of the transaction, and so the lock's
}

// passedTo reads from the key that a contender watches whether the lock is its now.
func passedTo(pairs api.KVPairs, session string) passed {
	word := passed{}
	if len(pairs) != 1 || pairs[0].Session != session || json.Unmarshal(pairs[0].Value, &word) != nil || word.To != session {
		return passed{}
	}
	word.index = pairs[0].ModifyIndex
	return word
}

// lookBehind finds out whom the hold can be passed on to.
func (h *hold) lookBehind(ctx context.Context) {
	r, err := h.b.txn(ctx, bare(api.KVGetTree, h.keys.line, 0))
	if err != nil {
		return
	}
	v := newView(h.keys, r.pairs)
	i := v.index(h.keys.token) + 1
	if i == 0 || i == len(v.entries) {
		return
	}
	// A detached hold begins with another session than it has waited with.
	if e := v.entries[i]; e.rec.Mode.Kind == backend.Exclusive && e.rec.Owner.Kind == backend.Run {
		h.next.Store(e)
	}
}

// passOver passes the lock to the next in line, if that still stands there.
func (h *hold) passOver(ctx context.Context, next *entry) (bool, error) {
	rec, word := next.rec, passed{To: next.session, Times: h.passed + 1}
	rec.Since, rec.Held = wallMillis(), true
	lock, own := h.keys.lock(), h.keys.entry()
	r, err := h.b.txn(ctx,
		sessionOp(api.KVCheckSession, next.pair.Key, next.session, nil),
		sessionOp(api.KVUnlock, lock, h.session.id, rec), sessionOp(api.KVLock, lock, next.session, rec),
		sessionOp(api.KVUnlock, own, h.session.id, word), sessionOp(api.KVLock, own, next.session, word))
	return err == nil && r.ok, err
}
