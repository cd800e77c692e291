// Package redlock is the lock service on several independent Redis servers, by the
// algorithm that the Redis documentation calls Redlock: who has the lock on a majority of
// them, and learned so in time, holds it. Each server has the keys and the scripts of
// package redis, so that other programs which use the algorithm on the same servers
// exclude dlock and are excluded by it.
//
// All servers are asked at the same time, and what a majority says is enough; what is
// still under way is finished, or called off, behind the caller's back. A line of waiters
// stands on every server, in the same order wherever two of them meet, since a ticket is
// one more than the last that a majority knows (as in Lamport's bakery); who is first in
// line is first on a majority, and nobody who comes later can have one before.
package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/redis"
	"github.com/dlock/dlock/internal/boottime"
)

// Backend is the locks of one namespace on several servers. It connects when first used.
type Backend struct {
	opts  Options
	nodes []*node
	clock func() boottime.Instant
	done  chan struct{} // closed when no request is to be made again
	close func() error
}

// node is one of the servers.
type node struct {
	*redis.Node
	named sync.Once // as one that does not work

	mu      sync.Mutex
	pending int           // requests that were begun
	idle    chan struct{} // closed when there are none; nil while nobody wants to know
}

var _ backend.Backend = (*Backend)(nil)

// New returns the Backend that opts describe; it connects to nothing.
func New(opts Options) *Backend {
	if opts.Detail == nil {
		opts.Detail = func(string) {}
	}
	b := &Backend{opts: opts, clock: boottime.Now, done: make(chan struct{})}
	for _, o := range opts.Nodes {
		o.Namespace, o.Warn = opts.Namespace, opts.Warn
		b.nodes = append(b.nodes, &node{Node: redis.NewNode(o)})
	}
	b.close = sync.OnceValue(b.closeAll)
	return b
}

// Limits tells the bounds of a lease.
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{Kind: "redlock", Address: b.opts.address(), MinTTL: time.Second, MaxTTL: redis.MaxTTL}
}

// Close closes the connections. It waits a moment for requests that a majority did not
// wait for: each server that can have a hold, a renewal or its end, should.
func (b *Backend) Close() error { return b.close() }

func (b *Backend) closeAll() error {
	close(b.done)
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	for _, n := range b.nodes {
		if n.Connected() {
			n.settle(ctx)
		}
	}
	var first error
	for _, n := range b.nodes {
		if err := n.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// begin and end count a request.
func (n *node) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pending++
}

func (n *node) end() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pending--; n.pending == 0 && n.idle != nil {
		close(n.idle)
		n.idle = nil
	}
}

// settle waits until no request is under way, or ctx ends.
func (n *node) settle(ctx context.Context) {
	n.mu.Lock()
	if n.pending > 0 && n.idle == nil {
		n.idle = make(chan struct{})
	}
	idle := n.idle
	n.mu.Unlock()
	if idle == nil {
		return
	}
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// majority is how many servers have to say yes.
func (b *Backend) majority() int { return len(b.nodes)/2 + 1 }

// veto is how many servers make a majority of the others impossible.
func (b *Backend) veto() int { return len(b.nodes) - b.majority() + 1 }

// Attach finds a detached hold by its token.
func (b *Backend) Attach(ctx context.Context, name, token string, ttl time.Duration) (backend.Hold, error) {
	if err := b.nodes[0].Check(name); err != nil {
		return nil, err
	}
	if token == "" {
		return nil, backend.ErrLost
	}
	answers, err := look(ctx, b, func(ctx context.Context, n *redis.Node) (redis.Held, error) { return n.Attach(ctx, name, token) })
	if err != nil {
		return nil, err
	}
	var fences []uint64
	h := &hold{b: b, seats: b.seats(), claim: redis.Claim{Name: name, Token: token, TTL: ttl}}
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		if a.value.Kind == backend.Run {
			return nil, backend.ErrRunning
		}
		fences = append(fences, a.value.Fence)
		if ttl == 0 {
			h.claim.TTL = max(h.claim.TTL, a.value.TTL)
		}
	}
	h.fence, h.until = mostNamed(fences), b.clock().Add(h.claim.TTL)
	return h, nil
}

// Revoke marks a run's hold, so that its run stops at its next renewal, and ends a
// detached one, or any with now.
func (b *Backend) Revoke(ctx context.Context, name, prefix string, now bool) (backend.Holder, error) {
	if prefix == "" {
		return backend.Holder{}, fmt.Errorf("%w: the token is empty", backend.ErrInvalid)
	}
	if err := b.nodes[0].Check(name); err != nil {
		return backend.Holder{}, err
	}
	seats := b.seats()
	defer b.settle(seats, requestLimit)
	answers, err := decide(ctx, b, ask(seats, requestLimit, func(ctx context.Context, n *redis.Node) (backend.Holder, error) {
		return n.Revoke(ctx, name, prefix, now)
	}))
	if err != nil {
		return backend.Holder{}, err
	}
	i := slices.IndexFunc(answers, func(a answer[backend.Holder]) bool { return a.err == nil })
	return answers[i].value, nil
}

// name tells, once for each server, that it does not work, or not with us.
func (b *Backend) name(seat int, err error) {
	if errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrDenied) || errors.Is(err, backend.ErrUnsupported) {
		b.nodes[seat].named.Do(func() { b.opts.Detail("going on without one of the servers: " + err.Error()) })
	}
}

// unavailable is the error of too many servers that do not work.
type unavailable struct {
	msg  string
	errs []error
}

// Error names the servers.
func (e *unavailable) Error() string { return e.msg }

// Unwrap makes it a service that does not work.
func (e *unavailable) Unwrap() []error { return append([]error{backend.ErrUnavailable}, e.errs...) }

// noMajority is the error of servers of which too many failed or refused, each for its own
// reason. It may be gone at the next try, when those that failed are back.
func (b *Backend) noMajority(errs []error) error {
	failed := 0
	var words []string
	for _, err := range errs {
		if redis.Passing(err) {
			failed++
		}
		words = append(words, err.Error())
	}
	slices.Sort(words)
	refuse := ""
	if n := len(errs) - failed; n > 0 {
		refuse = fmt.Sprintf(" and %d refuse", n)
	}
	return &unavailable{fmt.Sprintf("%d of the %d servers do not work%s, and a majority has to grant it: %s",
		failed, len(b.nodes), refuse, strings.Join(words, "; ")), nil}
}

// refusal is what servers mean of which so many say no that the others are no majority. A
// hold that was revoked on some and is missing on others was revoked; and one is lost only
// if that many say so: a server that refuses a password knows nothing of it.
func (b *Backend) refusal(errs []error) (first error) {
	lost := 0
	var loss error
	for _, err := range errs {
		switch {
		case redis.Passing(err):
		case errors.Is(err, backend.ErrRevoked):
			return err
		case errors.Is(err, backend.ErrLost):
			lost, loss = lost+1, err
		case first == nil:
			first = err
		}
	}
	if lost >= b.veto() {
		return loss
	}
	return first
}
