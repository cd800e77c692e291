package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/redis"
)

var (
	_ backend.Counter   = (*Backend)(nil)
	_ backend.Forgetter = (*Backend)(nil)
)

// forgetLimit bounds the wait for servers that lag behind a majority.
const forgetLimit = 10 * time.Second

// Requests counts the commands of all servers together.
func (b *Backend) Requests(ctx context.Context) (sum uint64, err error) {
	for _, n := range b.nodes {
		count, err := n.Requests(ctx)
		if err != nil {
			return 0, err
		}
		sum += count
	}
	return sum, nil
}

// Forget removes a lock that nobody holds or waits for from all servers that answer; the
// others forget it by themselves, in a month. A few that still know a holder are asked
// again: they are about to hear of his release.
func (b *Backend) Forget(ctx context.Context, name string) error {
	for until := b.clock().Add(forgetLimit); ; {
		answers, err := look(ctx, b, func(ctx context.Context, n *redis.Node) (struct{}, error) {
			return struct{}{}, n.Forget(ctx, name)
		})
		if err != nil {
			return err
		}
		var used error
		for _, a := range answers {
			if errors.Is(a.err, backend.ErrInvalid) {
				used = a.err
			}
		}
		if used == nil || b.clock() >= until {
			return used
		}
		select {
		case <-ctx.Done():
			return used
		case <-time.After(firstPause):
		}
	}
}
