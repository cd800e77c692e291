// Package tair is the lock service on Tair, the Redis-compatible service that compares
// and sets by commands of its own. The lock is the key of package redis: SET NX PX takes
// it, CAS renews it and CAD gives it back, so no script is needed. That allows exclusive
// holds and no line; for the rest there is redis://, which works on Tair too.
//
// What stands in the key is the owner's token, dlock:tail:<token> for what --min-hold
// leaves, or dlock:revoked:<token> for a hold whose run has to stop.
package tair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/redis"
	"github.com/dlock/dlock/internal/boottime"
)

const (
	tailMark    = "dlock:tail:"
	revokedMark = "dlock:revoked:"

	firstLimit    = 300 * time.Millisecond // that the first try gets in any case
	tryLimit      = 3 * time.Second        // of one request, when it is made again after that
	serviceLimit  = 60 * time.Second       // how long a wait goes on while the service does not work
	withdrawLimit = 500 * time.Millisecond
	firstPause    = 50 * time.Millisecond // between looks at a busy lock
	lastPause     = 500 * time.Millisecond
)

// Schemes lists the URL schemes of this service. A final s is TLS.
var Schemes = []string{schemePlain, schemeEncrypted}

const (
	schemePlain     = "tair"
	schemeEncrypted = "tairs"
)

// Backend is the locks of one namespace on one Tair. It connects when first used.
type Backend struct {
	node    *redis.Node
	address string
	clock   func() boottime.Instant
}

var _ backend.Backend = (*Backend)(nil)

// ParseURL reads tair://[user:password@]host[:6379][/db], or tairs:// with TLS, with the
// options of redis:// and rediss:// but ?replicas.
func ParseURL(u *url.URL) (redis.Options, error) {
	plain := *u
	plain.Scheme = "redis" + strings.TrimPrefix(u.Scheme, schemePlain)
	o, err := redis.ParseURL(&plain)
	o.Scheme = schemePlain
	if err == nil && o.Replicas > 0 {
		err = fmt.Errorf("%w backend URL: ?replicas is for redis://", backend.ErrInvalid)
	}
	return o, err
}

// New returns the Backend on the server that opts describe; it connects to nothing.
func New(opts redis.Options) *Backend {
	n := redis.NewNode(opts)
	return &Backend{node: n, address: n.Address(), clock: boottime.Now}
}

// Limits tells the bounds of a lease.
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{Kind: "tair", Address: b.address, MinTTL: time.Second, MaxTTL: redis.MaxTTL}
}

// Close closes the connections.
func (b *Backend) Close() error { return b.node.Close() }

// do sends commands; a server that does not know Tair's is told apart.
func (b *Backend) do(ctx context.Context, commands ...[]any) ([]any, error) {
	replies, err := b.node.Do(ctx, commands...)
	if errors.Is(err, backend.ErrUnsupported) {
		return nil, fmt.Errorf("%w: %s has no CAS and CAD commands, so it is no Tair: use redis:// in its URL", backend.ErrUnsupported, b.address)
	}
	return replies, err
}

// number sends a command that answers with a number.
func (b *Backend) number(ctx context.Context, command ...any) (int64, error) {
	replies, err := b.do(ctx, command)
	if err != nil {
		return 0, err
	}
	n, ok := replies[0].(int64)
	if !ok {
		return 0, fmt.Errorf("%w: %s answered %v with no number", backend.ErrUnavailable, b.address, command[0])
	}
	return n, nil
}

// unseeded is less than any server's time in µs, with which numbers begin.
const unseeded = 1e12

// What CAS and CAD answer. CAS without a time would take the key's own away.
const (
	done    = 1
	noMatch = 0 // and -1 where there is no such key
)

func (b *Backend) cas(ctx context.Context, key, from, to string, ttl time.Duration) (int64, error) {
	return b.number(ctx, "CAS", key, from, to, "PX", ttl.Milliseconds())
}

func (b *Backend) cad(ctx context.Context, key, value string) (int64, error) {
	return b.number(ctx, "CAD", key, value)
}

// keys are those of one lock.
type keys struct{ lock, meta, owner, index string }

func (b *Backend) keys(name string) (k keys, err error) {
	k.lock, k.meta, k.index, err = b.node.Keys(name)
	k.owner = strings.TrimSuffix(k.meta, "m") + "o"
	return k, err
}

// record is what is known of a hold, for people and for those who speak for it. It counts
// only as long as the key has its token.
type record struct {
	Token string        `json:"token"`
	Fence uint64        `json:"fence"`
	Since int64         `json:"since"` // by the server's clock, µs
	TTL   time.Duration `json:"ttl"`
	Owner backend.Owner `json:"owner"`
}

// Acquire takes the lock, or looks at it now and then until it is free.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Hold, error) {
	if uuid.Validate(req.Token) != nil || !req.Mode.Valid() {
		return nil, fmt.Errorf("%w: token %q, mode %q", backend.ErrInvalid, req.Token, req.Mode)
	}
	k, err := b.keys(req.Name)
	if err != nil {
		return nil, err
	}
	if req.Mode.Kind != backend.Exclusive {
		return nil, fmt.Errorf("%w: %s holds need scripts, which tair:// does without: use redis:// in the URL", backend.ErrUnsupported, req.Mode.Kind)
	}
	c := &contender{b: b, req: req, keys: k, answered: b.clock()}
	h, err := c.acquire(ctx)
	if err != nil {
		c.withdraw()
		return nil, err
	}
	return h, nil
}

// contender is one wish for a lock, from its start until it is granted or given up.
type contender struct {
	b    *Backend
	req  backend.Request
	keys keys

	claimed  bool             // the key may be ours
	answered boottime.Instant // when the service last did its work
}

func (c *contender) acquire(ctx context.Context) (*hold, error) {
	waiting := false
	tries, cancel := redis.AtLeast(ctx, firstLimit)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		h, err := c.try(tries)
		busy := (*backend.BusyError)(nil)
		switch {
		case errors.As(err, &busy) && (c.req.NoWait || c.req.TailIsBusy && slices.ContainsFunc(busy.Holders, func(h backend.Holder) bool { return h.Tail })):
			return nil, err
		case busy != nil && !waiting && c.req.Waiting != nil:
			if err := c.req.Waiting(backend.Wait{Holders: busy.Holders}); err != nil {
				return nil, err
			}
		case busy == nil && (err == nil || !redis.Passing(err) || c.req.NoWait || c.b.clock().Sub(c.answered) >= serviceLimit):
			return h, err
		}
		waiting, tries = waiting || busy != nil, ctx
		select {
		case <-ctx.Done():
			if busy != nil {
				return nil, context.Cause(ctx)
			}
			return nil, redis.GivenUp(err, context.Cause(ctx))
		case <-time.After(pause/2 + rand.N(pause)): // not in step with others
		}
	}
}

// try asks once. A token that has the lock already keeps it; on a server that is no Tair
// nothing is taken.
func (c *contender) try(ctx context.Context) (*hold, error) {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	sent := c.b.clock()
	had, err := c.b.cas(ctx, c.keys.lock, c.req.Token, c.req.Token, c.req.TTL)
	if err != nil {
		return nil, err
	}
	if had == noMatch {
		return nil, c.busy(ctx)
	}
	if had == done {
		if h, err := c.again(ctx, sent); h != nil || err != nil {
			return h, err
		}
	} else {
		sent, c.claimed = c.b.clock(), true
		set, err := c.b.do(ctx, []any{"SET", c.keys.lock, c.req.Token, "NX", "PX", c.req.TTL.Milliseconds()})
		if err != nil {
			return nil, err
		}
		if set[0] == nil {
			c.claimed = false
			return nil, c.busy(ctx)
		}
	}
	c.answered = c.b.clock()
	return c.number(ctx, sent)
}

// again is a hold that this token has already; nil if its record is missing.
func (c *contender) again(ctx context.Context, sent boottime.Instant) (*hold, error) {
	v, err := c.b.view(ctx, c.keys)
	if err != nil || v.record == nil {
		return nil, err
	}
	return c.hold(sent, v.record.Fence), nil
}

func (c *contender) hold(sent boottime.Instant, fence uint64) *hold {
	return &hold{b: c.b, keys: c.keys, token: c.req.Token, fence: fence, ttl: c.req.TTL,
		lease: backend.Lease{Sent: sent, TTL: c.req.TTL, Every: c.req.TTL / 3}}
}

// number draws the fence and writes the record. The number was drawn under this hold only
// if the answer came within the lease, so what comes later does not count.
func (c *contender) number(ctx context.Context, sent boottime.Instant) (*hold, error) {
	replies, err := c.b.do(ctx, []any{"HINCRBY", c.keys.meta, "f", 1}, []any{"TIME"})
	if err != nil {
		return nil, err
	}
	fence, micros := integer(replies[0]), timeOf(replies[1])
	if fence < unseeded { // the last one is not known, at most by some who drew and died here
		if fence, err = c.b.number(ctx, "HINCRBY", c.keys.meta, "f", micros); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(record{c.req.Token, uint64(fence), micros, c.req.TTL, c.req.Owner})
	if err != nil {
		return nil, fmt.Errorf("owner: %w", err)
	}
	memory, now := max(redis.Memory, 2*c.req.TTL).Milliseconds(), micros/1000
	_, err = c.b.do(ctx,
		[]any{"SET", c.keys.owner, string(text), "PX", memory},
		[]any{"PEXPIRE", c.keys.meta, memory},
		[]any{"ZREMRANGEBYSCORE", c.keys.index, "-inf", now},
		[]any{"ZADD", c.keys.index, now + memory, c.req.Name},
	)
	if err != nil {
		return nil, err
	}
	h := c.hold(sent, uint64(fence))
	if left := h.lease.Deadline().Sub(c.b.clock()); left < c.req.TTL/3 {
		return nil, fmt.Errorf("%w: %s took so long to grant a lease of %v that too little of it is left: a longer --ttl helps",
			backend.ErrUnavailable, c.b.address, c.req.TTL)
	}
	return h, nil
}

// busy is the error that names who has the lock.
func (c *contender) busy(ctx context.Context) error {
	v, err := c.b.view(ctx, c.keys)
	if err != nil {
		return err
	}
	c.answered = c.b.clock()
	if v.value == "" { // it has just ended
		return &backend.BusyError{}
	}
	return &backend.BusyError{Holders: []backend.Holder{v.holder()}}
}

// withdraw gives back a lock that was granted unnoticed. A SET that arrives even later
// leaves one lease, which ends by itself.
func (c *contender) withdraw() {
	if !c.claimed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), withdrawLimit)
	defer cancel()
	_, _ = c.b.cad(ctx, c.keys.lock, c.req.Token)
}

func integer(v any) int64 {
	n, _ := v.(int64)
	return n
}

// timeOf reads the reply of TIME, in µs.
func timeOf(v any) int64 {
	parts, _ := v.([]any)
	var micros int64
	for i, unit := range []int64{1e6, 1} {
		if i < len(parts) {
			s, _ := parts[i].(string)
			n, _ := strconv.ParseInt(s, 10, 64)
			micros += n * unit
		}
	}
	return micros
}
