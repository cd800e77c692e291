package zookeeper

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
)

var (
	_ backend.Counter   = (*Backend)(nil)
	_ backend.Forgetter = (*Backend)(nil)
)

// Requests counts the packets that the servers of the URL have received, heartbeats
// included, as their command srvr tells. Over TLS it is not known.
func (b *Backend) Requests(ctx context.Context) (uint64, error) {
	if b.opts.TLS != nil {
		return 0, fmt.Errorf("%w: the packets are not counted over TLS", backend.ErrUnsupported)
	}
	var sum uint64
	for _, addr := range b.opts.Addrs {
		n, err := received(ctx, addr)
		if err != nil {
			return 0, fmt.Errorf("%w: %s: srvr: %w", backend.ErrUnavailable, addr, err)
		}
		sum += n
	}
	return sum, nil
}

// received asks one server how many packets it has received.
func received(ctx context.Context, addr string) (uint64, error) {
	c, err := (&net.Dialer{Timeout: handshakeLimit}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(handshakeLimit)) // fails only for a closed one
	if _, err := c.Write([]byte("srvr")); err != nil {
		return 0, err
	}
	text, err := io.ReadAll(io.LimitReader(c, 64<<10))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "Received: ")
	number, _, _ := strings.Cut(rest, "\n")
	return strconv.ParseUint(number, 10, 64)
}

// Forget removes the node of a lock in whose line nobody stands. The server would do so
// within a minute.
func (b *Backend) Forget(ctx context.Context, name string) error {
	dir, err := b.dir(name)
	if err != nil {
		return err
	}
	s, err := b.shared()
	if err != nil {
		return err
	}
	err = do(ctx, s, func(c *zk.Conn) error { return c.Delete(dir, -1) })
	switch {
	case is(err, zk.ErrNoNode):
		return nil
	case is(err, zk.ErrNotEmpty):
		return fmt.Errorf("%w: somebody holds or waits for it", backend.ErrInvalid)
	}
	return err
}
