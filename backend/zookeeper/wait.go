package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/line"
	"github.com/dlock/dlock/internal/boottime"
)

// wait stands in line until the lock is ours. It looks again when what it watches has
// changed, when the connection was renewed, and when a lease may have ended that nobody
// else minds.
func (c *contender) wait(ctx context.Context) (backend.Hold, error) {
	for {
		settled, err := c.watch(ctx)
		if err != nil && !passing(err) {
			return nil, err
		}
		if err == nil && settled {
			if err := c.sleep(ctx); err != nil {
				return nil, err
			}
			c.answered = c.b.clock() // there was nothing to answer
			c.writeAhead(ctx)
		}
		h, err := c.ask(ctx)
		busy := (*backend.BusyError)(nil)
		if !errors.As(err, &busy) {
			return h, err
		}
		if !c.waits() {
			if h, busy, err := c.askWho(ctx); busy == nil || !c.waits() {
				return h, errors.Join(err, asError(busy))
			}
		}
	}
}

// asError keeps a nil *BusyError from being an error.
func asError(busy *backend.BusyError) error {
	if busy == nil {
		return nil
	}
	return busy
}

// watch sees to it that we learn of the end of the places that matter. It reports false
// when the line has changed since it was looked at.
func (c *contender) watch(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	for i, p := range c.decision.Watch {
		changes := c.decision.Changes && i == len(c.decision.Watch)-1
		there, err := c.watchPlace(ctx, c.line[p], changes)
		if err != nil || !there {
			return false, err
		}
	}
	return true, nil
}

// watchPlace watches one place, unless that is done. Of a place whose changes do not
// matter the children are watched, which it never has: that tells of its end alone,
// and not of each renewal.
func (c *contender) watchPlace(ctx context.Context, p place, changes bool) (there bool, err error) {
	path := c.dir + "/" + p.node
	if events, ok := c.watches[path]; ok && !fired(events) {
		return true, nil
	}
	delete(c.watches, path)
	var events <-chan zk.Event
	if changes || p.leased() {
		var e entry
		if e, events, err = c.b.readAndWatch(ctx, c.s, path); err == nil && changes && e.Held {
			return false, nil // it was admitted meanwhile
		}
	} else {
		events, err = watch(ctx, c.s, path, func(conn *zk.Conn) (<-chan zk.Event, error) {
			_, _, events, err := conn.ChildrenW(path)
			return events, err
		})
	}
	if is(err, zk.ErrNoNode) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	c.watches[path] = events
	return true, nil
}

func fired(events <-chan zk.Event) bool {
	select {
	case <-events:
		return true
	default:
		return false
	}
}

// sleep waits until there is a reason to look again.
func (c *contender) sleep(ctx context.Context) error {
	var timer <-chan time.Time
	if c.nextLook > 0 {
		t := time.NewTimer(c.nextLook)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
		if up, why := c.s.isUp(); !up {
			return c.b.noAnswer(why, context.Cause(ctx))
		}
		return context.Cause(ctx)
	case <-c.s.poke:
	case <-c.s.gone:
	case <-timer:
	}
	return nil
}

// minded is a lease that we keep an eye on, as we first saw it.
type minded struct {
	version int32
	seen    boottime.Instant
}

// decide finds out what the line means for the contender at place i. It reports true
// when it has evicted somebody, and the line has to be looked at again.
func (c *contender) decide(ctx context.Context, i int) (evicted bool, err error) {
	list := contenders(c.line)
	c.decision, c.nextLook = line.Decide(list, i), 0
	if len(c.decision.Mind) == 0 {
		return false, nil
	}
	entries := map[int]entry{}
	for _, p := range c.decision.Mind {
		e, err := c.b.read(ctx, c.s, c.dir+"/"+c.line[p].node)
		if is(err, zk.ErrNoNode) {
			return true, nil
		} else if err != nil {
			return false, err
		}
		entries[p] = e
	}
	if err := c.write(ctx); err != nil { // now its time is the server's
		return false, err
	}
	for p, e := range entries {
		left := c.left(c.line[p].node, e)
		if list[p].Expired = left <= 0; !list[p].Expired && (c.nextLook == 0 || left < c.nextLook) {
			c.nextLook = left
		}
	}
	c.decision = line.Decide(list, i)
	for _, p := range c.decision.Evict {
		err := c.b.remove(ctx, c.s, c.dir, c.line[p], entries[p].stat.Version)
		if err != nil && !is(err, zk.ErrNoNode, zk.ErrBadVersion) { // those mean that others were faster
			return false, err
		}
	}
	return len(c.decision.Evict) > 0, nil
}

// soon is how long after the end of a lease we look, by a clock that may be a little slow.
const soon = 5 * time.Millisecond

// left is how long a lease lasts that has no process behind it. The time is the server's,
// as the last write to our own node tells it; where the leader has changed since the
// lease was written, the two times are of different machines, and a whole lease has to
// pass from when we first saw it.
func (c *contender) left(node string, e entry) time.Duration {
	now := c.b.clock()
	m, ok := c.minded[node]
	if !ok || m.version != e.stat.Version {
		m = minded{e.stat.Version, now}
		c.minded[node] = m
	}
	if epoch(c.stat.Mzxid) != epoch(e.stat.Mzxid) {
		return e.lasts() + e.lasts()/100 - now.Sub(m.seen)
	}
	if left := e.lasts() - time.Duration(c.stat.Mtime-e.stat.Mtime)*time.Millisecond; left > 0 {
		return left + soon
	}
	return 0
}

// write writes our own node, as it was last seen or not at all.
func (c *contender) write(ctx context.Context) error {
	path := c.dir + "/" + c.place.node
	for {
		if !c.fresh {
			e, err := c.b.read(ctx, c.s, path)
			if err != nil {
				return err
			}
			c.stat, c.data.Revoked = e.stat, e.Revoked
		}
		c.fresh = false // whatever becomes of it
		stat, err := call(ctx, c.s, func(conn *zk.Conn) (*zk.Stat, error) {
			return conn.Set(path, c.data.encode(), c.stat.Version)
		})
		if err == nil {
			c.stat, c.fresh = *stat, true
			return nil
		}
		if !is(err, zk.ErrBadVersion) {
			return err
		}
	}
}

// written is the outcome of a write that was sent ahead.
type written struct {
	sent boottime.Instant
	stat *zk.Stat
	err  error
}

// writeAhead sends the write that confirms the place together with the look that says
// whether it is admitted, which it mostly is when it was woken. A write that comes too
// early does no harm, but where others watch for it.
func (c *contender) writeAhead(ctx context.Context) {
	if !c.fresh || c.req.Mode.Kind == backend.Slots || c.s.isOver() {
		return
	}
	s, path, version := c.s, c.dir+"/"+c.place.node, c.stat.Version
	data := c.data
	data.Held = true
	ahead := make(chan written, 1)
	c.ahead, c.fresh = ahead, false
	go func() {
		ctx, cancel := context.WithTimeout(ctx, tryLimit)
		defer cancel()
		w := written{sent: c.b.clock()}
		w.stat, w.err = call(ctx, s, func(conn *zk.Conn) (*zk.Stat, error) { return conn.Set(path, data.encode(), version) })
		ahead <- w
	}()
}

// collect takes in the outcome of the write that was sent ahead.
func (c *contender) collect() {
	c.sent = 0
	if c.ahead == nil {
		return
	}
	if w := <-c.ahead; w.err == nil {
		c.stat, c.fresh, c.sent = *w.stat, true, w.sent
	}
	c.ahead = nil
}

// idle forgets what woke the session before a look: the look sees it.
func (c *contender) idle() {
	select {
	case <-c.s.poke:
	default:
	}
}
