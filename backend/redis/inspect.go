package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
)

// Inspect reports on locks. Without names it lists those of the index, which holds what
// was used in the last month; in a cluster, which can have no index, it scans all
// masters for them.
func (b *Backend) Inspect(ctx context.Context, names ...string) ([]backend.Status, error) {
	listed := len(names) == 0
	if listed {
		var err error
		if names, err = b.names(ctx); err != nil {
			return nil, err
		}
	}
	answers, err := b.inspectEach(ctx, names)
	if err != nil {
		return nil, err
	}
	var list []backend.Status
	for i, name := range names {
		s, err := backend.Status{Name: name}, answers[i].err
		if err != nil && !listed {
			return nil, err
		}
		if s.Err = err; err == nil {
			k, _ := b.keys(name, "")
			s = status(name, answers[i].reply)
			s.Problems = odd(answers[i].reply.list(4), k[keyLock])
		}
		if listed && err == nil && len(s.Holders)+len(s.Waiters) == 0 {
			continue
		}
		list = append(list, s)
	}
	return list, nil
}

// inspectEach asks for the state of locks whose names may be used.
func (b *Backend) inspectEach(ctx context.Context, names []string) ([]answer, error) {
	locks := make([]lockKeys, len(names))
	for i, name := range names {
		var err error
		if locks[i], err = b.keys(name, ""); err != nil {
			return nil, err
		}
	}
	return b.runEach(ctx, inspectScript, locks)
}

// status reads the reply of inspectScript.
func status(name string, r reply) backend.Status {
	s := backend.Status{Name: name}
	s.Fence, s.Holders = r.fence(3), r.list(4).holders()
	slices.SortStableFunc(s.Holders, func(a, b backend.Holder) int { return cmp.Compare(b.Held, a.Held) })
	for i := range r.list(5) {
		s.Waiters = append(s.Waiters, waiter(r.list(5).list(i)))
	}
	return s
}

// odd tells of holders that cannot be read, or that nothing would free.
func odd(holders reply, key string) (problems []string) {
	for i := range holders {
		h := holders.list(i)
		shown := holder(h)
		if text := h.text(8); text != "" && !json.Valid([]byte(text)) {
			problems = append(problems, "the record of a holder cannot be read")
		}
		if shown.Owner.Kind == backend.Foreign && !shown.Leased {
			problems = append(problems, "the key "+key+" has no expiry: if the program that holds it dies, the lock stays taken until somebody deletes the key")
		}
	}
	return problems
}

// names lists the locks of the namespace, sorted.
func (b *Backend) names(ctx context.Context) ([]string, error) {
	var found []string
	_, err := b.call(ctx, func(ctx context.Context) (any, error) {
		var err error
		if c, ok := b.client.(*redis.ClusterClient); ok {
			found, err = b.scan(ctx, c)
		} else {
			found, err = b.client.ZRange(ctx, b.indexKey(), 0, -1).Result()
		}
		return []any{"done", ""}, err
	})
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(name string) bool {
		_, _, err := b.lockAndBase(name)
		return err != nil
	})
	slices.Sort(found)
	return slices.Compact(found), nil
}

// scan looks for locks on all masters of a cluster.
func (b *Backend) scan(ctx context.Context, c *redis.ClusterClient) ([]string, error) {
	found := make(chan []string)
	var errs error
	go func() {
		defer close(found)
		errs = c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			var names []string
			keys := node.ScanType(ctx, 0, b.metaPattern(), 1000, "hash").Iterator()
			for keys.Next(ctx) {
				if name, ok := b.nameOf(keys.Val()); ok {
					names = append(names, name)
				}
			}
			found <- names
			return keys.Err()
		})
	}()
	var all []string
	for names := range found {
		all = append(all, names...)
	}
	return all, errors.Join(errs)
}
