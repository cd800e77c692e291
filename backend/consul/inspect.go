package consul

import (
	"context"
	"slices"
	"strings"

	"github.com/dlock/dlock/backend"
)

// Inspect reports on locks. Without names it looks for them among the keys below the
// prefix.
func (b *Backend) Inspect(ctx context.Context, names ...string) ([]backend.Status, error) {
	listed := len(names) == 0
	if listed {
		var err error
		if names, err = b.names(ctx); err != nil {
			return nil, err
		}
	}
	var list []backend.Status
	for _, name := range names {
		k, err := b.keys(name, "")
		if err != nil {
			return nil, err
		}
		v, err := b.look(ctx, k)
		if err != nil {
			return nil, err
		}
		if s := v.status(); !listed || len(s.Holders)+len(s.Waiters) > 0 {
			list = append(list, s)
		}
	}
	return list, nil
}

// names lists the locks below the prefix, sorted.
func (b *Backend) names(ctx context.Context) ([]string, error) {
	c, err := b.client()
	if err != nil {
		return nil, err
	}
	prefix := b.prefix()
	var names []string
	for _, below := range []string{strings.TrimPrefix(prefix+"/", "/"), prefix + lineMark + "/"} {
		found, _, err := c.KV().Keys(below, "", query(ctx))
		if err != nil {
			return nil, b.opts.translate(ctx, err)
		}
		for _, key := range found {
			level, last, _ := strings.Cut(strings.TrimPrefix(key, below), "/")
			if strings.Contains(last, "/") || below[max(0, len(below)-len(lineMark)-1):] != lineMark+"/" && last != lockKey {
				continue
			}
			if name, ok := nameOf(level); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
