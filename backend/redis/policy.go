package redis

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// checkPolicy warns if the server may throw locks away when its memory is full. It
// runs beside the first renewal, so that a short command pays nothing for it.
func (b *Backend) checkPolicy() {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		info, err := b.client.Info(ctx, "memory").Result()
		if err != nil {
			return // the ACL may not allow it
		}
		if policy := field(info, "maxmemory_policy"); policy != "" && policy != "noeviction" {
			b.opts.Warn(fmt.Sprintf("%s has maxmemory-policy %s, so that it may throw locks away when its memory is full; "+
				"locks want noeviction", b.opts.address(), policy))
		}
	}()
}

// field finds a line of INFO.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
