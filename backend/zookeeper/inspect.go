package zookeeper

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/line"
	"github.com/dlock/dlock/internal/boottime"
)

// Inspect reports on locks. Without names it lists those of the namespace that somebody
// holds or waits for.
func (b *Backend) Inspect(ctx context.Context, names ...string) ([]backend.Status, error) {
	s, err := b.shared()
	if err != nil {
		return nil, err
	}
	listed := len(names) == 0
	if listed {
		if names, err = b.names(ctx, s); err != nil {
			return nil, err
		}
	}
	var list []backend.Status
	var seen serverClock
	for _, name := range names {
		st, err := b.inspect(ctx, s, name, &seen)
		if err != nil && (!listed || passing(err) || ctx.Err() != nil) {
			return nil, err
		}
		st.Err = err
		if listed && err == nil && len(st.Holders)+len(st.Waiters) == 0 {
			continue
		}
		list = append(list, st)
	}
	return list, nil
}

// names lists the locks of the namespace, sorted.
func (b *Backend) names(ctx context.Context, s *session) ([]string, error) {
	base := b.base()
	if base == "" {
		base = "/"
	}
	nodes, err := call(ctx, s, func(c *zk.Conn) ([]string, error) {
		nodes, _, err := c.Children(base)
		return nodes, err
	})
	if err != nil && !is(err, zk.ErrNoNode) {
		return nil, err
	}
	var names []string
	for _, node := range nodes {
		if name, ok := b.lockName(node); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

func (b *Backend) inspect(ctx context.Context, s *session, name string, seen *serverClock) (backend.Status, error) {
	st := backend.Status{Name: name}
	dir, err := b.dir(name)
	if err != nil {
		return st, err
	}
	places, err := b.list(ctx, s, dir)
	if err != nil {
		return st, err
	}
	if len(places) > 0 && slices.ContainsFunc(places, func(p place) bool { return p.recipe != places[0].recipe }) {
		st.Problems = append(st.Problems, "contenders of Curator's InterProcessReadWriteLock stand beside others, which do not heed them")
	}
	now, err := seen.now(ctx, b, s, dir, places)
	if err != nil {
		return st, err
	}
	entries := make([]entry, len(places))
	there := make([]bool, len(places))
	for i, p := range places {
		e, err := b.read(ctx, s, dir+"/"+p.node)
		if err != nil && !is(err, zk.ErrNoNode) {
			return st, err
		}
		entries[i], there[i] = e, err == nil && !(p.leased() && left(e, now) <= 0)
		st.Problems = append(st.Problems, oddPlace(p, e, err == nil && !there[i], places[i+1:], -left(e, now))...)
	}
	b.fill(&st, places, entries, there, now)
	return st, nil
}

// oddPlace tells of a place whose record cannot be read, and of one whose lease has
// ended where somebody waits behind it who does not know of leases.
func oddPlace(p place, e entry, over bool, behind []place, by time.Duration) (odd []string) {
	if p.token != "" && e.bad {
		odd = append(odd, "the record of "+p.node+" cannot be read")
	}
	if over && slices.ContainsFunc(behind, func(p place) bool { return p.token == "" }) {
		odd = append(odd, fmt.Sprintf("a lease that ended %v ago keeps other programs waiting; any dlock that takes the lock ends that", by.Round(time.Second)))
	}
	return odd
}

// fill sorts the contenders that are there into holders and waiters.
func (b *Backend) fill(st *backend.Status, places []place, entries []entry, there []bool, now int64) {
	var present []place
	var of []entry
	for i := range places {
		if there[i] {
			present, of = append(present, places[i]), append(of, entries[i])
		}
	}
	holding := line.Holders(contenders(present))
	for i, p := range present {
		if i < holding {
			h := holder(p, of[i], now)
			st.Holders, st.Fence = append(st.Holders, h), max(st.Fence, h.Fence)
			continue
		}
		st.Waiters = append(st.Waiters, backend.Waiter{Owner: owner(p, of[i]), Mode: p.mode, Waiting: elapsed(now, of[i].stat.Ctime)})
	}
}

// serverClock is the server's clock as it was seen once: to ask costs two writes.
type serverClock struct {
	millis int64 // zero until it was seen
	at     boottime.Instant
}

// now is the time by the server's clock, where leases are to be judged by it, and ours
// where it only has to be shown how long ago something was.
func (c *serverClock) now(ctx context.Context, b *Backend, s *session, dir string, places []place) (int64, error) {
	if !slices.ContainsFunc(places, place.leased) {
		return wallMillis(), nil
	}
	if c.millis == 0 {
		millis, err := b.now(ctx, s, dir)
		if err != nil || millis == 0 {
			return wallMillis(), err
		}
		c.millis, c.at = millis, b.clock()
	}
	return c.millis + b.clock().Sub(c.at).Milliseconds(), nil
}

// now is the time by the server's clock; zero where the lock's node has gone. To learn
// it we make a node that counts for nobody.
func (b *Backend) now(ctx context.Context, s *session, dir string) (int64, error) {
	now, err := call(ctx, s, func(c *zk.Conn) (int64, error) {
		path, err := c.Create(dir+"/_now_", nil, zk.FlagEphemeralSequential, b.opts.acl())
		if err != nil {
			return 0, err
		}
		_, stat, err := c.Exists(path)
		if err == nil {
			err = c.Delete(path, -1)
		}
		if err != nil {
			return 0, err
		}
		return stat.Ctime, nil
	})
	if is(err, zk.ErrNoNode) {
		return 0, nil
	}
	return now, err
}

// wallMillis is our own clock, good only to show how long ago something was.
func wallMillis() int64 { return time.Now().UnixMilli() }

// left is what is left of the lease of a place without a process.
func left(e entry, now int64) time.Duration { return e.lasts() - elapsed(now, e.stat.Mtime) }

// holder is a contender that holds the lock, for people to see.
func holder(p place, e entry, now int64) backend.Holder {
	h := backend.Holder{
		Token: p.token, Owner: owner(p, e), Mode: p.mode, Fence: e.fence(), Held: elapsed(now, e.since()),
		Revoked: e.Revoked, Tail: p.state == tail,
	}
	switch {
	case p.token == "":
		h.Held = elapsed(now, e.stat.Ctime)
	case p.leased():
		h.Leased, h.Left = true, max(time.Millisecond, left(e, now))
	default:
		h.Leased, h.Left = true, time.Duration(e.TTL)*time.Millisecond
	}
	return h
}

// owner is who stands behind a place.
func owner(p place, e entry) backend.Owner {
	o := e.Owner
	switch {
	case p.token == "":
		o = backend.Owner{Kind: backend.Foreign}
	case p.state == detached:
		o.Kind = backend.Detached
	case o.Kind == "": // its record cannot be read
		o.Kind = backend.Foreign
	}
	return o
}

// holds tells whether place i is among those that hold the lock.
func holds(places []place, i int) bool { return i < line.Holders(contenders(places)) }
