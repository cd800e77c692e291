package tair

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
)

var (
	_ backend.Counter   = (*Backend)(nil)
	_ backend.Forgetter = (*Backend)(nil)
)

// Requests counts the commands that the server has executed.
func (b *Backend) Requests(ctx context.Context) (uint64, error) { return b.node.Requests(ctx) }

// Forget removes the keys of a lock that nobody holds, which it has itself meanwhile.
func (b *Backend) Forget(ctx context.Context, name string) error {
	k, err := b.keys(name)
	if err != nil {
		return err
	}
	token := uuid.NewString()
	if _, err := b.cas(ctx, k.lock, token, token, tryLimit); err != nil { // before anything is taken: is it a Tair?
		return err
	}
	set, err := b.do(ctx, []any{"SET", k.lock, token, "NX", "PX", tryLimit.Milliseconds()})
	if err != nil {
		return err
	}
	if set[0] == nil {
		return fmt.Errorf("%w: somebody holds it", backend.ErrInvalid)
	}
	_, err = b.do(ctx, []any{"DEL", k.meta, k.owner}, []any{"ZREM", k.index, name}, []any{"CAD", k.lock, token})
	return err
}
