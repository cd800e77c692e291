// Package consul is the lock service on Consul.
//
// Every contender has a session of its own and a key in the line, <prefix>.dlock/<name>/<token>,
// that the session holds; package line says whose turn it is, and each waits by a
// blocking query on the key before its own. Whose turn it is passes the gate, which is
// what other programs know: an exclusive hold has <prefix>/<name>/.lock as api.Lock and
// `consul lock` do, a slot is a holder of an api.Semaphore there, and shared holds keep
// .lock together, by a session that all of them renew.
//
// An exclusive holder passes the lock on to the next in line without freeing it; see
// handover.go.
//
// A session that ends uncleanly leaves its keys unlockable for its lock-delay, so nobody
// gets in while its command may still be dying; see gate.go for what that needs.
package consul

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

const (
	// MinTTL is the shortest lease that may be asked for. The server raises it to its
	// session_ttl_min, 10 s by default, which is told once.
	MinTTL = time.Second
	// MaxTTL is the longest lease, as Consul has it.
	MaxTTL = 24 * time.Hour
)

// Backend is the locks below one prefix of one Consul. It connects when first used.
type Backend struct {
	opts   Options
	clock  func() boottime.Instant
	client func() (*client, error)
	raised sync.Once // the word about a TTL that was raised
}

var _ backend.Backend = (*Backend)(nil)

// New returns the Backend that opts describe; it connects to nothing.
func New(opts Options) *Backend {
	if opts.Warn == nil {
		opts.Warn = func(string) {}
	}
	b := &Backend{opts: opts, clock: boottime.Now}
	b.client = sync.OnceValues(func() (*client, error) { return newClient(opts) })
	return b
}

// Limits tells the bounds of a lease.
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{Kind: "consul", Address: b.opts.address(), MinTTL: MinTTL, MaxTTL: MaxTTL}
}

// Close closes the connections. Sessions are not ended by it.
func (b *Backend) Close() error {
	if c, err := b.client(); err == nil {
		c.transport.CloseIdleConnections()
	}
	return nil
}

// Attach finds a detached hold by its token.
func (b *Backend) Attach(ctx context.Context, name, token string, ttl time.Duration) (backend.Hold, error) {
	k, err := b.keys(name, token)
	if err != nil {
		return nil, err
	}
	if uuid.Validate(token) != nil || strings.ToLower(token) != token {
		return nil, backend.ErrLost
	}
	v, err := b.look(ctx, k)
	if err != nil {
		return nil, err
	}
	e := v.find(token)
	switch {
	case e == nil || !v.holds(e) || e.rec.Tail:
		return nil, backend.ErrLost
	case e.rec.Owner.Kind == backend.Run:
		return nil, backend.ErrRunning
	}
	h := b.found(k, v, e)
	if ttl > 0 {
		h.ttl = ttl
	}
	return h, nil
}

// found is a hold that was seen.
func (b *Backend) found(k keys, v *view, e *entry) *hold {
	rec := v.record(e)
	k.token, k.again = e.token, strings.TrimPrefix(e.pair.Key, k.line+e.token)
	return &hold{
		b: b, keys: k, mode: rec.Mode, ttl: rec.ttl(), grace: rec.delay(), fence: v.fence(e), detached: true,
		session: &session{id: e.session, ttl: rec.ttl(), delay: rec.delay()},
	}
}

// Revoke marks a run's hold, which its run notices at once, and ends a detached one and
// a tail, or any with now.
func (b *Backend) Revoke(ctx context.Context, name, prefix string, now bool) (backend.Holder, error) {
	k, err := b.keys(name, "")
	if err != nil {
		return backend.Holder{}, err
	}
	if prefix == "" {
		return backend.Holder{}, fmt.Errorf("%w: the token is empty", backend.ErrInvalid)
	}
	for {
		v, err := b.look(ctx, k)
		if err != nil {
			return backend.Holder{}, err
		}
		e, err := v.holder(prefix)
		if err != nil {
			return backend.Holder{}, err
		}
		rec := v.record(e)
		shown := v.show(e)
		var done bool
		switch {
		case now || rec.Tail || rec.Owner.Kind == backend.Detached:
			done, err = b.found(k, v, e).leave(ctx, v, e)
		case rec.Revoked:
			return shown, nil
		default:
			rec.Revoked, rec.Fence = true, v.fence(e)
			done, err = b.write(ctx, v.main(e), rec)
		}
		if err != nil || done {
			return shown, err
		}
	}
}

// write replaces the record of a hold if nobody was faster.
func (b *Backend) write(ctx context.Context, p *api.KVPair, rec record) (bool, error) {
	r, err := b.txn(ctx, op(api.KVCAS, p.Key, rec, p.ModifyIndex))
	return err == nil && r.ok, err
}

// KeepOpen lists nothing: the lock is elsewhere.
func (h *hold) KeepOpen() []*os.File { return nil }
