package mysql

import (
	"context"
	"fmt"

	"github.com/dlock/dlock/backend"
)

var (
	_ backend.Counter   = (*Backend)(nil)
	_ backend.Forgetter = (*Backend)(nil)
)

// Requests counts the statements that clients have sent to the server.
func (b *Backend) Requests(ctx context.Context) (n uint64, err error) {
	err = b.with(ctx, func(s *session) error {
		v, err := s.one(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'")
		n = v.natural(1)
		return err
	})
	return n, err
}

// Forget deletes the row of a lock that nobody holds.
func (b *Backend) Forget(ctx context.Context, name string) error {
	id, err := b.lock(name)
	if err != nil {
		return err
	}
	return b.with(ctx, func(s *session) error {
		st, err := s.read(ctx, id)
		if err != nil {
			return err
		}
		if len(st.Holders) > 0 {
			return fmt.Errorf("%w: somebody holds it", backend.ErrInvalid)
		}
		if !st.row.exists { // there is no row, and maybe no table
			return nil
		}
		_, err = s.exec(ctx, "DELETE FROM "+table+byKey+" AND token = ''", id.ns, id.name)
		return err
	})
}
