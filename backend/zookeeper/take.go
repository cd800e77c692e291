package zookeeper

import (
	"context"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// take makes a hold of a place that is admitted.
func (c *contender) take(ctx context.Context) (backend.Hold, error) {
	if c.place.state == detached {
		return c.swapped(ctx)
	}
	lease, err := c.confirm(ctx)
	if err != nil {
		return nil, err
	}
	if c.req.Detached {
		return c.swap(ctx)
	}
	c.tellGranted()
	h := &hold{
		b: c.b, s: c.s, dir: c.dir, place: c.place, data: c.data, version: c.stat.Version,
		fence: c.fence(), lease: lease, lost: make(chan error, 1), over: make(chan struct{}),
	}
	c.s.holds.Store(true)
	go h.watch()
	return h, nil
}

func (c *contender) fence() uint64 { return uint64(c.stat.Czxid) }

// confirm sees to it that the place is still ours and how long the session lasts. The
// creation of the place has proved that if it was just now; after a wait a write does,
// which also marks the place for who watches it.
func (c *contender) confirm(ctx context.Context) (backend.Lease, error) {
	sent := c.made
	if c.sent != 0 {
		sent, c.data.Held, c.data.Since = c.sent, true, c.stat.Mtime
	} else if c.waited || c.b.clock().Sub(sent) > c.granted/8 {
		sent, c.data.Held = c.b.clock(), true
		if err := c.write(ctx); err != nil {
			return backend.Lease{}, err
		}
		c.data.Since = c.stat.Mtime
	}
	if c.stat.Czxid == 0 {
		e, err := c.b.read(ctx, c.s, c.dir+"/"+c.place.node)
		if err != nil {
			return backend.Lease{}, err
		}
		c.stat, c.fresh, c.data.Revoked = e.stat, true, e.Revoked
		c.data.Since = c.stat.Ctime
	}
	return c.s.lease(sent), nil
}

// tellGranted says once that the server has its own mind about the TTL.
func (c *contender) tellGranted() {
	if c.granted == c.req.TTL.Truncate(time.Millisecond) {
		return
	}
	c.b.warned.Do(func() {
		c.b.opts.Warn(fmt.Sprintf("%s grants a session timeout of %v in place of the TTL of %v; the lock is free so long after a crash",
			c.b.opts.address(), c.granted, c.req.TTL))
	})
}

// swap puts persistent nodes in the place of the ephemeral ones, which keep its number.
func (c *contender) swap(ctx context.Context) (backend.Hold, error) {
	data := record{Token: c.req.Token, Owner: c.req.Owner, TTL: c.req.TTL.Milliseconds(), Fence: c.fence()}
	h := &detachedHold{
		b: c.b, dir: c.dir, place: c.place.as(detached), fence: data.Fence,
		lease: leaseOf(c.b.clock(), c.req.TTL), ttl: c.req.TTL,
	}
	c.unsure = true
	err := c.b.swap(ctx, c.s, c.dir, c.place, h.place, data)
	c.unsure = err != nil && !answered(err)
	if err != nil {
		return nil, err
	}
	c.b.end(c.s)
	return h, nil
}

// swapped is the hold that an earlier swap has made.
func (c *contender) swapped(ctx context.Context) (backend.Hold, error) {
	sent := c.b.clock()
	e, err := c.b.read(ctx, c.s, c.dir+"/"+c.place.node)
	if err != nil {
		return nil, err
	}
	h := &detachedHold{b: c.b, dir: c.dir, place: c.place, fence: e.fence(), ttl: c.req.TTL}
	if h.lease, err = h.renew(ctx, c.s, sent); err != nil {
		return nil, err
	}
	c.b.end(c.s)
	return h, nil
}

// swap replaces the nodes of a place by persistent ones for the same place in line.
func (b *Backend) swap(ctx context.Context, s *session, dir string, from, to place, data record) error {
	var ops []any
	for _, node := range from.nodes() {
		ops = append(ops, &zk.DeleteRequest{Path: dir + "/" + node, Version: -1})
	}
	text := data.encode()
	for _, node := range to.nodes() {
		ops = append(ops, &zk.CreateRequest{Path: dir + "/" + node, Data: text, Acl: b.opts.acl(), Flags: zk.FlagPersistent})
		text = nil
	}
	return do(ctx, s, func(c *zk.Conn) error {
		_, err := c.Multi(ops...)
		return err
	})
}

// leaseOf is the lease of what has no session.
func leaseOf(sent boottime.Instant, ttl time.Duration) backend.Lease {
	return backend.Lease{Sent: sent, TTL: ttl, Every: ttl / 3}
}
