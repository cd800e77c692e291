package torture_test

import (
	"context"
	"net/url"
	"os"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// plain is the Redis recipe without a flaw, as the clients of a control use it: quick to
// see that the lock is free, so that nobody who should be dead by then goes unnoticed.
type plain struct {
	backend.Backend
	client *goredis.Client
}

func openPlain(address string) backend.Backend {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return &plain{client: goredis.NewClient(&goredis.Options{Addr: u.Host, DisableIdentity: true})}
}

func (p *plain) Close() error { return p.client.Close() }

func (p *plain) Acquire(ctx context.Context, req backend.Request) (backend.Hold, error) {
	time.Sleep(20 * time.Millisecond) // the others want it too
	for {
		sent := boottime.Now()
		got, err := p.client.SetNX(ctx, req.Name, req.Token, req.TTL).Result()
		if got && err == nil {
			fence, err := p.client.Incr(ctx, req.Name+":fence").Uint64()
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return &plainHold{p, backend.Grant{Token: req.Token, Fence: fence, Lease: backend.Lease{Sent: sent, TTL: req.TTL}}}, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
}

type plainHold struct {
	p     *plain
	grant backend.Grant
}

func (h *plainHold) Grant() backend.Grant                         { return h.grant }
func (h *plainHold) Renew(context.Context) (backend.Lease, error) { return h.grant.Lease, nil } // held for an instant
func (h *plainHold) Lost() <-chan error                           { return nil }
func (h *plainHold) KeepOpen() []*os.File                         { return nil }

func (h *plainHold) Release(ctx context.Context, _ time.Duration) error {
	const compareAndDelete = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`
	return h.p.client.Eval(ctx, compareAndDelete, []string{"t"}, h.grant.Token).Err()
}
