package consul

import (
	"context"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
)

// withdraw leaves the line, or gives back a lock that was granted unnoticed.
func (c *contender) withdraw() {
	if c.s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), withdrawLimit)
	defer cancel()
	// If this fails, the session ends by itself, and what it holds.
	switch {
	case c.req.Mode.Kind == backend.Exclusive && (c.inLine || c.unsure):
		c.giveBack(ctx)
	case c.unsure:
		if v, err := c.b.look(ctx, c.keys); err == nil {
			if e := v.find(c.req.Token); e != nil && v.holds(e) && e.session == c.s.id {
				if st, err := c.b.exit(ctx, v, e); err == nil {
					_, _ = c.b.do(ctx, st)
				}
				return
			}
		}
	}
	_ = c.b.destroySession(ctx, c.s.id)
}

// giveBack leaves the line, after which nobody passes the lock on to us, and frees it if
// that had happened, or if a request that has not been answered took it: a session that
// ends with the lock would leave it a lock-delay.
func (c *contender) giveBack(ctx context.Context) {
	lock, entry, gate := c.keys.lock(), c.keys.entry(), bare(api.KVGetTree, c.keys.gate, 0)
	r, err := c.b.txn(ctx, sessionOp(api.KVCheckSession, entry, c.s.id, nil), bare(api.KVDelete, entry, 0), gate)
	if err == nil && !r.ok {
		r, err = c.b.txn(ctx, gate)
	}
	if err != nil {
		return
	}
	if p := r.at(lock); p != nil && p.Session == c.s.id {
		_, _ = c.b.txn(ctx, sessionOp(api.KVCheckSession, lock, c.s.id, nil), bare(api.KVDelete, lock, 0))
	}
}
