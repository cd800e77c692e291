package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
)

var (
	_ backend.Counter   = (*Backend)(nil)
	_ backend.Forgetter = (*Backend)(nil)
)

// Requests counts the commands that the server has executed, those inside scripts
// included; in a cluster it is not known.
func (b *Backend) Requests(ctx context.Context) (uint64, error) {
	client, ok := b.client.(*redis.Client)
	if !ok {
		return 0, fmt.Errorf("%w: the commands of a cluster are not counted", backend.ErrUnsupported)
	}
	info, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, b.translate(err)
	}
	var sum uint64
	for line := range strings.Lines(info) { // cmdstat_set:calls=3,usec=…
		if _, rest, ok := strings.Cut(line, ":calls="); ok {
			calls, _, _ := strings.Cut(rest, ",")
			n, _ := strconv.ParseUint(calls, 10, 64)
			sum += n
		}
	}
	return sum, nil
}

// Forget removes the keys of a lock that nobody holds or waits for. Tombstones of takes
// whose answer was lost stay until they end.
func (b *Backend) Forget(ctx context.Context, name string) error {
	k, err := b.keys(name, "")
	if err != nil {
		return err
	}
	r, err := b.run(ctx, forgetScript, k, name)
	if err == nil && r.status() == "busy" {
		err = fmt.Errorf("%w: somebody holds or waits for it", backend.ErrInvalid)
	}
	return err
}
