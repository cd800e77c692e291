// Package redis is the lock service on Redis or Valkey: one server, a master that
// sentinels watch over, or a cluster.
//
// The lock is a string key that holds the owner's token and ends by itself, as the
// Redis documentation describes it (SET key token NX PX, compare and delete), so that
// programs that use that recipe exclude dlock and are excluded by it. What the recipe
// lacks stands in keys beside it: the owner, the line, shared and slots holders and
// the fence. Every step is one Lua script (see lua/lock.lua), judged by the server's
// clock alone.
//
// A waiter subscribes to a channel of its own. Whoever releases lets the script pass
// the lock on: it is offered to the first in line for a second, and the waiter holds
// it from its own answer on, since no lease may count from a moment that only
// somebody else knows.
package redis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// MaxTTL is the longest lease.
const MaxTTL = 365 * 24 * time.Hour

// Backend is the locks of one namespace on one Redis. It connects when first used.
type Backend struct {
	opts      Options
	client    redis.UniversalClient
	clock     func() boottime.Instant
	policy    sync.Once   // the look at the eviction policy
	connected atomic.Bool // a server has answered once
}

var _ backend.Backend = (*Backend)(nil)

// New returns the Backend that opts describe; it connects to nothing.
func New(opts Options) *Backend {
	if opts.Warn == nil {
		opts.Warn = func(string) {}
	}
	b := &Backend{opts: opts, clock: boottime.Now}
	b.client = newClient(opts, func(ctx context.Context, _ *redis.Conn) error {
		b.connected.Store(true)
		return ctx.Err() // of the request, which is not sent if nobody waits for it any more
	})
	return b
}

// Limits tells the bounds of a lease.
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{Kind: "redis", Address: b.opts.address(), MinTTL: time.Second, MaxTTL: MaxTTL}
}

// Close closes the connections.
func (b *Backend) Close() error { return b.client.Close() }

// Attach finds a detached hold by its token.
func (b *Backend) Attach(ctx context.Context, name, token string, ttl time.Duration) (backend.Hold, error) {
	k, err := b.keys(name, token)
	if err != nil {
		return nil, err
	}
	if token == "" {
		return nil, backend.ErrLost
	}
	r, err := b.run(ctx, attachScript, k, token)
	if err != nil {
		return nil, err
	}
	if err := r.refusal(); err != nil {
		return nil, err
	}
	if backend.OwnerKind(r.text(4)) == backend.Run {
		return nil, backend.ErrRunning
	}
	if ttl == 0 {
		ttl = r.ms(3)
	}
	return &hold{b: b, name: name, keys: k, token: token, fence: r.fence(2), ttl: ttl}, nil
}

// Revoke marks a run's hold, so that its run stops at its next renewal, and ends a
// detached one, or any with now.
func (b *Backend) Revoke(ctx context.Context, name, prefix string, now bool) (backend.Holder, error) {
	return b.revoke(ctx, revokeScript, name, prefix, now)
}

func (b *Backend) revoke(ctx context.Context, s script, name, prefix string, now bool) (backend.Holder, error) {
	if prefix == "" {
		return backend.Holder{}, fmt.Errorf("%w: the token is empty", backend.ErrInvalid)
	}
	k, err := b.keys(name, "")
	if err != nil {
		return backend.Holder{}, err
	}
	r, err := b.run(ctx, s, k, prefix, flag(now))
	if err == nil && r.status() == "foreign" {
		err = fmt.Errorf("%w: another program holds this lock, and dlock does not end its hold; the key is %s", backend.ErrUnsupported, k[keyLock])
	} else if err == nil {
		err = r.refusal()
	}
	if err != nil {
		return backend.Holder{}, err
	}
	return holder(r.list(2)), nil
}

// flag is a truth as scripts read it.
func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
