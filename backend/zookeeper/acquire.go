package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/line"
	"github.com/dlock/dlock/internal/boottime"
)

const (
	tryLimit      = 3 * time.Second        // of one look, when there may be another after it
	serviceLimit  = 60 * time.Second       // how long a wait goes on while the service does not work
	troubleLimit  = time.Second            // the same for who does not wait
	firstLimit    = 300 * time.Millisecond // that the first look gets in any case
	withdrawLimit = 500 * time.Millisecond
	longestWait   = 30 * time.Second // session timeout of a contender for a hold that outlives it
	lastNumber    = 1<<31 - 1_000_000
)

// contender is one wish for a lock, from its start until it is granted or given up.
type contender struct {
	b   *Backend
	req backend.Request
	dir string

	s       *session         // nil: not in line
	granted time.Duration    // its timeout
	place   place            // ours in the line; without a node: not known
	unsure  bool             // nodes may have been made that we have not seen
	made    boottime.Instant // when the place was asked for
	waited  bool             // it was not the first thing that we saw that we are admitted
	ahead   <-chan written   // the outcome of a write that was sent ahead; nil: there is none
	data    record
	sent    boottime.Instant // of a write that was sent ahead and acknowledged; zero: there is none
	stat    zk.Stat          // of the place, as last seen; a zero Czxid: not seen
	fresh   bool             // the version of its node is that of stat

	answered boottime.Instant // when the service last did its work
	line     []place          // as last seen
	decision line.Decision
	watches  map[string]<-chan zk.Event
	minded   map[string]minded
	nextLook time.Duration // until a lease that we mind may end; zero: there is none
}

// Acquire takes the lock, or waits in line for it.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Hold, error) {
	if !isToken(req.Token) || !req.Mode.Valid() {
		return nil, fmt.Errorf("%w: token %q, mode %q", backend.ErrInvalid, req.Token, req.Mode)
	}
	dir, err := b.dir(req.Name)
	if err != nil {
		return nil, err
	}
	c := &contender{b: b, req: req, dir: dir, answered: b.clock(), data: record{Token: req.Token, Owner: req.Owner}}
	h, err := c.acquire(ctx)
	if err != nil {
		c.withdraw()
		return nil, err
	}
	return h, nil
}

func (c *contender) acquire(ctx context.Context) (backend.Hold, error) {
	first, cancel := atLeast(ctx, firstLimit)
	defer cancel()
	h, busy, err := c.askWho(first)
	if busy == nil {
		return h, err
	}
	if !c.waits() {
		return nil, busy
	} else if c.req.Waiting != nil {
		if err := c.req.Waiting(backend.Wait{Holders: busy.Holders, Ahead: busy.Ahead}); err != nil {
			return nil, err
		}
	}
	return c.wait(ctx)
}

// askWho is ask, and reads who holds the lock if it is busy.
func (c *contender) askWho(ctx context.Context) (backend.Hold, *backend.BusyError, error) {
	for {
		h, err := c.ask(ctx)
		busy := (*backend.BusyError)(nil)
		if !errors.As(err, &busy) {
			return h, nil, err
		}
		if busy.Holders, err = c.holders(ctx); err == nil {
			return nil, busy, nil
		} else if !passing(err) {
			return nil, nil, err
		}
	}
}

// waits tells whether the contender is willing to wait for those who hold the lock.
func (c *contender) waits() bool {
	if c.req.NoWait {
		return false
	}
	return !c.req.TailIsBusy || !slices.ContainsFunc(c.holding(), func(p place) bool { return p.state == tail })
}

// holding lists the places that hold the lock, as last seen.
func (c *contender) holding() []place { return c.line[:line.Holders(contenders(c.line))] }

// ask looks whether the lock is ours, and goes into the line first if need be, until the
// service answers. A session that ended is replaced, with a place at the end.
func (c *contender) ask(ctx context.Context) (backend.Hold, error) {
	began := c.b.clock()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		h, err := c.try(ctx)
		switch trouble := c.b.clock().Sub(c.answered); {
		case err == nil, !passing(err):
			c.answered = c.b.clock()
			return h, err
		case expired(err):
			c.leave()
		case ctx.Err() == nil && (c.req.NoWait && trouble >= troubleLimit || trouble >= max(serviceLimit, c.req.TTL)):
			return nil, err
		}
		select {
		case <-ctx.Done():
			if c.s != nil && c.b.clock().Sub(began) < troubleLimit {
				if up, _ := c.s.isUp(); up { // it has not had the time to answer
					return nil, context.Cause(ctx)
				}
			}
			return nil, givenUp(err, context.Cause(ctx))
		case <-time.After(pause):
		}
	}
}

// try looks once, and goes on as long as what it sees changes by its own doing.
func (c *contender) try(ctx context.Context) (backend.Hold, error) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	if c.s == nil {
		if err := c.begin(); err != nil {
			return nil, err
		}
	}
	for {
		if c.place.node == "" && !c.unsure {
			if err := c.join(ctx); err != nil {
				return nil, err
			}
		}
		i, err := c.look(ctx)
		if err != nil {
			c.ahead = nil
			return nil, err
		}
		c.collect()
		if i < 0 { // never made, or removed by somebody
			c.place, c.unsure = place{}, false
			continue
		}
		evicted, err := c.decide(ctx, i)
		switch {
		case err != nil:
			return nil, err
		case evicted:
		case c.decision.Admitted:
			return c.take(ctx)
		case c.decision.Conflict >= 0:
			n := c.line[c.decision.Conflict].mode.N
			return nil, fmt.Errorf("%w: %d slots asked for, but the lock has %d now", backend.ErrInvalid, c.req.Mode.N, n)
		default:
			c.waited = true
			return nil, &backend.BusyError{Ahead: c.decision.Ahead}
		}
	}
}

// begin starts a session.
func (c *contender) begin() (err error) {
	timeout := c.req.TTL
	if c.req.Detached {
		timeout = min(timeout, longestWait)
	}
	c.s, err = c.b.open(timeout)
	c.watches, c.minded = map[string]<-chan zk.Event{}, map[string]minded{}
	return err
}

// leave gives up the session and the place in line.
func (c *contender) leave() {
	if c.s != nil {
		c.b.end(c.s)
	}
	c.s, c.place, c.stat, c.fresh, c.unsure, c.waited, c.data.Held, c.sent = nil, place{}, zk.Stat{}, false, false, false, false, 0
}

// join makes the nodes of a place at the end of the line.
func (c *contender) join(ctx context.Context) error {
	granted, err := c.s.granted(ctx)
	if err != nil {
		return err
	}
	c.granted, c.data.TTL = granted, granted.Milliseconds()
	for {
		c.unsure, c.made = true, c.b.clock()
		names, err := c.makePlace(ctx)
		c.unsure = err != nil && !answered(err)
		switch {
		case is(err, zk.ErrNoNode):
			if err := c.b.makeParents(ctx, c.s, c.dir); err != nil {
				return err
			}
		case err != nil:
			return err
		default:
			places := parse(names)
			if len(places) != 1 || places[0].seq < 0 || places[0].seq >= lastNumber {
				return &opError{kind: backend.ErrUnavailable, final: true, err: errNumbers, msg: fmt.Sprintf(
					"%s: %v below %s: let nobody use the lock for two minutes, or remove that node when it is empty", c.b.opts.address(), errNumbers, c.dir)}
			}
			c.place, c.stat, c.fresh = places[0], zk.Stat{}, true
			return nil
		}
	}
}

var errNumbers = errors.New("the numbers of the line are used up")

// makePlace makes the nodes and returns their names.
func (c *contender) makePlace(ctx context.Context) ([]string, error) {
	var ops []any
	data := c.data.encode()
	for _, prefix := range prefixes(c.b.opts.Recipe, c.req.Token, c.req.Mode) {
		ops = append(ops, &zk.CreateRequest{Path: c.dir + "/" + prefix, Data: data, Acl: c.b.opts.acl(), Flags: zk.FlagEphemeralSequential})
		data = nil // the twin needs none
	}
	return call(ctx, c.s, func(conn *zk.Conn) ([]string, error) {
		made, err := conn.Multi(ops...)
		var names []string
		for _, m := range made {
			names = append(names, m.String[min(len(c.dir)+1, len(m.String)):])
		}
		return names, err
	})
}

// look lists the line and finds our place in it: -1 if we have none. What an unnoticed
// try may have made besides is removed.
func (c *contender) look(ctx context.Context) (int, error) {
	c.idle()
	places, err := c.b.list(ctx, c.s, c.dir)
	if err != nil {
		return -1, err
	}
	mine := -1
	var spare []place
	for i, p := range places {
		switch {
		case p.token != c.req.Token:
		case mine < 0:
			mine = i
		default:
			spare = append(spare, p)
		}
	}
	for _, p := range spare {
		if err := c.b.remove(ctx, c.s, c.dir, p, -1); err != nil && !is(err, zk.ErrNoNode) {
			return -1, err
		}
		places = slices.DeleteFunc(places, func(o place) bool { return o.node == p.node })
	}
	if c.line = places; mine < 0 {
		return -1, nil
	}
	if other := places[mine].recipe; other != c.b.opts.Recipe || slices.ContainsFunc(places, func(p place) bool { return p.recipe != other }) {
		return -1, c.b.mixed(c.dir)
	}
	if places[mine].node != c.place.node {
		c.place, c.stat, c.fresh = places[mine], zk.Stat{}, false
	}
	c.unsure = false
	return mine, nil
}

// mixed is the error of a line in which two recipes' contenders stand, which do not
// exclude each other.
func (b *Backend) mixed(dir string) error {
	return fmt.Errorf("%w: below %s stand contenders of Curator's InterProcessReadWriteLock and others, which do not heed each other; use ?recipe=rwlock for all or for none",
		backend.ErrInvalid, dir)
}

// list reads the line of a lock; one that does not exist is empty.
func (b *Backend) list(ctx context.Context, s *session, dir string) ([]place, error) {
	nodes, err := call(ctx, s, func(c *zk.Conn) ([]string, error) {
		nodes, _, err := c.Children(dir)
		return nodes, err
	})
	if is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return parse(nodes), err
}

// remove deletes the nodes of a place, if the first still has that version; -1 is any.
func (b *Backend) remove(ctx context.Context, s *session, dir string, p place, version int32) error {
	return do(ctx, s, func(c *zk.Conn) error {
		if p.twin == "" {
			return c.Delete(dir+"/"+p.node, version)
		}
		_, err := c.Multi(&zk.DeleteRequest{Path: dir + "/" + p.node, Version: version}, &zk.DeleteRequest{Path: dir + "/" + p.twin, Version: -1})
		return err
	})
}

// withdraw leaves the line, or gives back a lock that was granted unnoticed.
func (c *contender) withdraw() {
	if c.s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), withdrawLimit)
	defer cancel()
	// If this fails too, what is ephemeral ends with the session, and one lease at most
	// is left of a detached hold.
	switch {
	case c.unsure || c.req.Detached:
		if places, err := c.b.list(ctx, c.s, c.dir); err == nil {
			for _, p := range places {
				if p.token == c.req.Token {
					_ = c.b.remove(ctx, c.s, c.dir, p, -1)
				}
			}
		}
	case c.place.node != "":
		_ = c.b.remove(ctx, c.s, c.dir, c.place, -1)
	}
	c.leave()
}

// holders reads who holds the lock, as last seen; who has left since is left out.
func (c *contender) holders(ctx context.Context) ([]backend.Holder, error) {
	var list []backend.Holder
	for _, p := range c.holding() {
		e, err := c.b.read(ctx, c.s, c.dir+"/"+p.node)
		if is(err, zk.ErrNoNode) {
			continue
		} else if err != nil {
			return nil, err
		}
		list = append(list, holder(p, e, wallMillis()))
	}
	return list, nil
}
