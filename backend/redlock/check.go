package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dlock/dlock/backend"
)

var _ backend.Checker = (*Backend)(nil)

// Check looks at each server, and at how many of them may fail.
func (b *Backend) Check(ctx context.Context, ttl time.Duration) []backend.Check {
	limit := limitOf(ttl)
	down, found := make([]string, len(b.nodes)), make([][]backend.Check, len(b.nodes))
	var all sync.WaitGroup
	for i, n := range b.nodes {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, max(limit, time.Second)) // a first connection takes longer than a renewal
			defer cancel()
			if found[i] = n.Settings(ctx); errors.Is(ctx.Err(), context.DeadlineExceeded) || !n.Connected() {
				down[i], found[i] = n.Address(), nil
			}
		})
	}
	all.Wait()
	return append([]backend.Check{b.servers(slices.DeleteFunc(down, func(s string) bool { return s == "" }))}, slices.Concat(found...)...)
}

// servers judges how many there are, and which do not answer.
func (b *Backend) servers(down []string) backend.Check {
	const check = "servers"
	n, spare := len(b.nodes), len(b.nodes)-b.majority()
	switch {
	case len(down) > spare:
		return backend.Found(check, backend.Fail, "start them", "%d of %d do not answer: %q; a lock needs %d", len(down), n, down, b.majority())
	case len(down) > 0:
		return backend.Found(check, backend.Warn, "start it", "%d of %d do not answer: %q; %d may", len(down), n, down, spare)
	case n%2 == 0:
		return backend.Found(check, backend.Warn, "an odd number", "%d stand no more losses than %d", n, n-1)
	}
	return backend.Good(check, "%d, of which %d may fail", n, spare)
}
