package consul

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/lazy"
)

// client is a connection to one agent.
type client struct {
	*api.Client
	transport *http.Transport
}

// silence swallows what net/http writes to the standard logger when an agent that has
// too many connections of ours answers without having been asked.
var silence = sync.OnceFunc(func() { log.SetOutput(io.Discard) })

// newClient reads the environment, which the URL beats.
func newClient(o Options) (*client, error) {
	silence()
	c := api.DefaultConfig()
	u := o.Config
	for _, f := range []struct {
		from string
		to   *string
	}{
		{u.Address, &c.Address}, {u.Scheme, &c.Scheme}, {u.Datacenter, &c.Datacenter}, {u.Namespace, &c.Namespace},
		{u.Partition, &c.Partition}, {u.TLSConfig.CAFile, &c.TLSConfig.CAFile}, {u.TLSConfig.CertFile, &c.TLSConfig.CertFile},
		{u.TLSConfig.KeyFile, &c.TLSConfig.KeyFile}, {u.TLSConfig.Address, &c.TLSConfig.Address},
	} {
		if f.from != "" {
			*f.to = f.from
		}
	}
	if u.Token != "" || u.TokenFile != "" {
		c.Token, c.TokenFile = u.Token, u.TokenFile
	}
	if u.HttpAuth != nil {
		c.HttpAuth = u.HttpAuth
	}
	c.Transport.MaxIdleConnsPerHost = 2
	c.Transport.DisableCompression = true // it costs the agent more than it saves
	made, err := api.NewClient(c)
	if err != nil {
		return nil, fmt.Errorf("%w: the settings of the Consul client: %s", backend.ErrInvalid, err)
	}
	return &client{made, c.Transport}, nil
}

func query(ctx context.Context) *api.QueryOptions {
	return (&api.QueryOptions{RequireConsistent: true}).WithContext(ctx)
}

func writing(ctx context.Context) *api.WriteOptions { return new(api.WriteOptions).WithContext(ctx) }

// session is one of Consul's sessions.
type session struct {
	id         string
	ttl, delay time.Duration

	mu   sync.Mutex
	sent boottime.Instant // of the last request that kept it alive
}

// since is from when its TTL counts.
func (s *session) since() boottime.Instant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

func (s *session) kept(sent boottime.Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = max(s.sent, sent)
}

// maxDelay is the longest lock-delay that Consul takes.
const maxDelay = time.Minute

// newSession makes a session that no health check ends, with the TTL raised to what the
// server allows. The typed API would drop a lock-delay of zero.
func (b *Backend) newSession(ctx context.Context, name string, ttl, delay time.Duration) (*session, error) {
	c, err := b.client()
	if err != nil {
		return nil, err
	}
	delay = min(delay, maxDelay)
	for {
		var made struct{ ID string }
		sent := b.clock()
		_, err := c.Raw().Write("/v1/session/create", map[string]any{
			"Name": "dlock: " + name, "TTL": ttl.String(), "Behavior": api.SessionBehaviorDelete,
			"LockDelay": delay.String(), "NodeChecks": []string{},
		}, &made, writing(ctx))
		if least := leastTTL(err); least > ttl {
			ttl = least
			continue
		}
		if err != nil {
			return nil, b.opts.translate(ctx, err)
		}
		return &session{id: made.ID, ttl: ttl, delay: delay, sent: sent}, nil
	}
}

var ttlBounds = lazy.Regexp(`Invalid Session TTL .* must be between \[([^=]*)=`)

// leastTTL is the shortest TTL of the server, if err says so.
func leastTTL(err error) time.Duration {
	status := api.StatusError{}
	if !errors.As(err, &status) {
		return 0
	}
	m := ttlBounds().FindStringSubmatch(status.Body)
	if m == nil {
		return 0
	}
	d, err := time.ParseDuration(m[1])
	if err != nil {
		return 0
	}
	return d
}

// renewSession keeps a session alive for its TTL from now; ErrLost says that it is gone.
func (b *Backend) renewSession(ctx context.Context, s *session) error {
	c, err := b.client()
	if err != nil {
		return err
	}
	sent := b.clock()
	e, _, err := c.Session().Renew(s.id, writing(ctx))
	if err != nil {
		return b.opts.translate(ctx, err)
	}
	if e == nil {
		return backend.ErrLost
	}
	s.kept(sent)
	return nil
}

// awaitEnd waits until a session has ended, at most for d.
func (b *Backend) awaitEnd(ctx context.Context, id string, d time.Duration) error {
	c, err := b.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d+d/16+blockLimit)
	defer cancel()
	q := query(ctx)
	q.WaitTime = d
	for {
		s, meta, err := c.Session().Info(id, q)
		if err != nil {
			return b.opts.translate(ctx, err)
		}
		if s == nil || q.WaitIndex != 0 {
			return nil
		}
		q.WaitIndex = max(1, meta.LastIndex)
	}
}

// destroySession ends a session, and what it holds.
func (b *Backend) destroySession(ctx context.Context, id string) error {
	c, err := b.client()
	if err != nil {
		return err
	}
	_, err = c.Session().Destroy(id, writing(ctx))
	return b.opts.translate(ctx, err)
}

// result is the outcome of a transaction.
type result struct {
	ok      bool // false: refused, and nothing was done
	session bool // refused since a session has ended
	delayed bool // refused since a lock-delay is not over
	pairs   []*api.KVPair
}

// at finds a key as the transaction has left it; nil if it is not there. A step that only
// checks a key tells it, too, as it was before.
func (r result) at(key string) *api.KVPair {
	for _, p := range slices.Backward(r.pairs) {
		if p.Key == key {
			return p
		}
	}
	return nil
}

// txn does all of ops at once, or none.
func (b *Backend) txn(ctx context.Context, ops ...*api.KVTxnOp) (result, error) {
	c, err := b.client()
	if err != nil {
		return result{}, err
	}
	var all api.TxnOps
	for _, o := range ops {
		all = append(all, &api.TxnOp{KV: o})
	}
	ok, resp, _, err := c.Txn().Txn(all, query(ctx))
	if err != nil {
		return result{}, b.opts.translate(ctx, err)
	}
	r := result{ok: ok}
	for _, e := range resp.Errors {
		switch {
		case strings.Contains(e.What, "invalid session"):
			r.session = true
		case strings.Contains(e.What, "lock delay"):
			r.delayed = true
		case strings.Contains(e.What, "Permission denied"):
			return r, b.opts.fromServer(http.StatusForbidden, e.What, errors.New(e.What))
		}
	}
	for _, res := range resp.Results {
		if res.KV != nil {
			r.pairs = append(r.pairs, res.KV)
		}
	}
	return r, nil
}

// op is one step of a transaction. It stores v as JSON.
func op(verb api.KVOp, key string, v any, index uint64) *api.KVTxnOp {
	o := &api.KVTxnOp{Verb: verb, Key: key, Flags: flagsOf(v), Index: index}
	if v != nil {
		o.Value = encodeJSON(v)
	}
	return o
}

// sessionOp is a step of a session with a key.
func sessionOp(verb api.KVOp, key, session string, v any) *api.KVTxnOp {
	o := op(verb, key, v, 0)
	o.Session = session
	return o
}

// bare is a step that stores nothing.
func bare(verb api.KVOp, key string, index uint64) *api.KVTxnOp {
	return &api.KVTxnOp{Verb: verb, Key: key, Index: index}
}

func flagsOf(v any) uint64 {
	if _, ok := v.(semaphore); ok {
		return api.SemaphoreFlagValue
	}
	return api.LockFlagValue
}

// blockLimit is what a blocking query may take beyond its time: Consul adds a sixteenth.
const blockLimit = 5 * time.Second

// block waits until the key, or what begins with it, has changed after index, at most
// for d, and returns what is there now.
func (b *Backend) block(ctx context.Context, key string, tree bool, index uint64, d time.Duration) (api.KVPairs, uint64, error) {
	c, err := b.client()
	if err != nil {
		return nil, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, d+d/16+blockLimit)
	defer cancel()
	q := query(ctx)
	q.WaitIndex, q.WaitTime = index, d
	var pairs api.KVPairs
	var meta *api.QueryMeta
	if tree {
		pairs, meta, err = c.KV().List(key, q)
	} else {
		var p *api.KVPair
		if p, meta, err = c.KV().Get(key, q); p != nil {
			pairs = api.KVPairs{p}
		}
	}
	if err != nil {
		return nil, 0, b.opts.translate(ctx, err)
	}
	return pairs, meta.LastIndex, nil
}
