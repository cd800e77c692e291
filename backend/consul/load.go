package consul

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
)

var _ backend.Counter = (*Backend)(nil)

// Requests counts the writes that the servers have agreed on, the entries of their Raft
// log: Consul's metrics have no sum of the reads. Only an agent that is a server knows it.
func (b *Backend) Requests(ctx context.Context) (uint64, error) {
	c, err := b.client()
	if err != nil {
		return 0, err
	}
	var self struct {
		Stats struct{ Raft map[string]string }
	}
	if _, err := c.Raw().Query("/v1/agent/self", &self, (&api.QueryOptions{}).WithContext(ctx)); err != nil {
		return 0, b.opts.translate(ctx, err)
	}
	text, ok := self.Stats.Raft["applied_index"]
	if !ok {
		return 0, fmt.Errorf("%w: the agent is not a server", backend.ErrUnsupported)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: applied_index: %w", backend.ErrUnavailable, err)
	}
	return n, nil
}
