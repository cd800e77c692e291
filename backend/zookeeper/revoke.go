package zookeeper

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
)

// Revoke marks a run's hold, which its run notices at once, and ends a detached one and
// a tail, or any with now.
func (b *Backend) Revoke(ctx context.Context, name, prefix string, now bool) (backend.Holder, error) {
	if prefix == "" {
		return backend.Holder{}, fmt.Errorf("%w: the token is empty", backend.ErrInvalid)
	}
	dir, err := b.dir(name)
	if err != nil {
		return backend.Holder{}, err
	}
	s, err := b.shared()
	if err != nil {
		return backend.Holder{}, err
	}
	places, err := b.list(ctx, s, dir)
	if err != nil {
		return backend.Holder{}, err
	}
	p, err := findHolder(places, prefix)
	if err != nil {
		return backend.Holder{}, err
	}
	return b.revoke(ctx, s, dir, p, now)
}

// findHolder finds the one holder whose token begins with prefix.
func findHolder(places []place, prefix string) (place, error) {
	found, foreign := place{}, 0
	for i, p := range places {
		switch {
		case !holds(places, i):
		case p.token == "":
			foreign++
		case !strings.HasPrefix(p.token, prefix):
		case found.node != "":
			return found, fmt.Errorf("%w: several holders' tokens begin so", backend.ErrInvalid)
		default:
			found = p
		}
	}
	switch {
	case found.node != "":
		return found, nil
	case foreign > 0:
		return found, fmt.Errorf("%w: another program holds this lock, and dlock does not end its hold", backend.ErrUnsupported)
	}
	return found, backend.ErrLost
}

func (b *Backend) revoke(ctx context.Context, s *session, dir string, p place, now bool) (backend.Holder, error) {
	path := dir + "/" + p.node
	for {
		e, err := b.read(ctx, s, path)
		if err == nil {
			switch data := e.record; {
			case now || p.leased():
				err = b.removeAny(ctx, s, dir, p)
			case !e.Revoked:
				data.Revoked = true
				err = do(ctx, s, func(c *zk.Conn) error {
					_, err := c.Set(path, data.encode(), e.stat.Version)
					return err
				})
			}
		}
		switch {
		case err == nil:
			return holder(p, e, wallMillis()), nil
		case is(err, zk.ErrNoNode):
			return backend.Holder{}, backend.ErrLost
		case !is(err, zk.ErrBadVersion):
			return backend.Holder{}, err
		}
	}
}
