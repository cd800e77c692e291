package zookeeper

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
)

// hold is a lock that hangs on a session of ours.
type hold struct {
	b     *Backend
	s     *session
	dir   string
	place place
	fence uint64
	lease backend.Lease // as granted
	lost  chan error

	over chan struct{} // closed when we have given the lock back

	mu        sync.Mutex
	data      record
	version   int32 // of the node, as last seen
	releasing bool
	done      bool
	end       error // why the hold has ended without us
}

// Grant tells token, fence and the lease as it was granted.
func (h *hold) Grant() backend.Grant {
	return backend.Grant{Token: h.data.Token, Fence: h.fence, Lease: h.lease}
}

func (h *hold) path() string { return h.dir + "/" + h.place.node }

// Renew writes the node, which only its session's quorum can acknowledge, and tells how
// long the session lasts. Whoever else has written the node has revoked the hold.
func (h *hold) Renew(ctx context.Context) (backend.Lease, error) {
	for {
		if err := h.ended(); err != nil {
			return backend.Lease{}, err
		}
		h.mu.Lock()
		data, version := h.data, h.version
		h.mu.Unlock()
		sent := h.b.clock()
		stat, err := call(ctx, h.s, func(c *zk.Conn) (*zk.Stat, error) { return c.Set(h.path(), data.encode(), version) })
		switch {
		case err == nil:
			h.written(stat.Version)
			return h.s.lease(sent), nil
		case expired(err), is(err, zk.ErrNoNode):
			return backend.Lease{}, h.lose(backend.ErrLost)
		case !is(err, zk.ErrBadVersion):
			return backend.Lease{}, err
		}
		e, err := h.b.read(ctx, h.s, h.path())
		if err := h.notice(e, err); err != nil {
			return backend.Lease{}, err
		}
	}
}

// ended tells why the hold is no longer one.
func (h *hold) ended() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done {
		return backend.ErrLost
	}
	return h.end
}

func (h *hold) isReleasing() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.releasing
}

func (h *hold) written(version int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.version = max(h.version, version)
}

// notice takes in what was read of our node, and tells whether that is the end of the
// hold.
func (h *hold) notice(e entry, err error) error {
	switch {
	case expired(err), is(err, zk.ErrNoNode):
		return h.lose(backend.ErrLost)
	case err != nil:
		return err
	case e.Revoked:
		return h.lose(backend.ErrRevoked)
	}
	h.written(e.stat.Version)
	return nil
}

// lose notes the end of the hold, and tells it once.
func (h *hold) lose(why error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.done:
		return backend.ErrLost
	case h.end == nil:
		h.end = why
		h.lost <- why
	case why == backend.ErrLost:
		h.end = why // also of one that was revoked before
	}
	return h.end
}

// watch tells of the end of the hold: of the session, of the node, or by revocation.
func (h *hold) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-h.over
		cancel()
	}()
	for {
		e, events, err := h.b.readAndWatch(ctx, h.s, h.path())
		if h.ended() != nil || h.isReleasing() {
			return
		}
		pause := time.Duration(0)
		if err := h.notice(e, err); err != nil {
			if errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrRevoked) {
				return
			}
			events, pause = nil, firstPause // until there is a connection again
		}
		if !h.await(events, pause) || h.isReleasing() {
			return // what becomes of the node now is our own doing
		}
	}
}

// await waits for the event, or for pause if that is above zero. It reports false at
// the end of the hold.
func (h *hold) await(events <-chan zk.Event, pause time.Duration) bool {
	var timer <-chan time.Time
	if pause > 0 {
		timer = time.After(pause)
	}
	select {
	case <-events:
	case <-timer:
	case <-h.s.stop:
		if h.s.isOver() {
			_ = h.lose(backend.ErrLost)
		}
		return false
	case <-h.over:
		return false
	}
	return true
}

// releaseTry is how long one try to release may take.
const releaseTry = 2 * time.Second

// Release gives the lock back, or puts a tail in its place. It tries until ctx ends.
// Once an answer went missing, "not held" is taken for what that try has done.
func (h *hold) Release(ctx context.Context, tail time.Duration) error {
	if err := h.ended(); err != nil && !errors.Is(err, backend.ErrRevoked) {
		h.finish()
		return err
	} else if err != nil {
		tail = 0 // somebody wants it free
	}
	h.mu.Lock()
	h.releasing = true
	h.mu.Unlock()
	err := retry(ctx, func(ctx context.Context) error { return h.release(ctx, tail) })
	if err == nil || errors.Is(err, backend.ErrLost) {
		h.finish()
	}
	return err
}

// finish ends the session, to which nothing belongs any more.
func (h *hold) finish() {
	h.mu.Lock()
	first := !h.done
	h.done = true
	h.mu.Unlock()
	if first {
		close(h.over)
		h.s.holds.Store(false)
		h.b.end(h.s)
	}
}

func (h *hold) release(ctx context.Context, length time.Duration) error {
	h.mu.Lock()
	data := h.data
	h.mu.Unlock()
	return h.b.release(ctx, h.s, h.dir, h.place, length, record{Token: data.Token, Owner: data.Owner, Since: data.Since, Fence: h.fence})
}

// release removes a place, or puts a tail of that length in its stead.
func (b *Backend) release(ctx context.Context, s *session, dir string, p place, length time.Duration, data record) error {
	var err error
	if data.TTL = length.Milliseconds(); data.TTL > 0 {
		err = b.swap(ctx, s, dir, p, p.as(tail), data)
	} else {
		err = b.removeAny(ctx, s, dir, p)
	}
	if is(err, zk.ErrNoNode) || expired(err) {
		return backend.ErrLost
	}
	return err
}

// removeAny removes the nodes of a place, the second also when the first has gone by
// itself. It fails with zk.ErrNoNode if the first has.
func (b *Backend) removeAny(ctx context.Context, s *session, dir string, p place) error {
	err := b.remove(ctx, s, dir, p, -1)
	if !is(err, zk.ErrNoNode) || p.twin == "" {
		return err
	}
	for _, node := range p.nodes() {
		one := do(ctx, s, func(c *zk.Conn) error { return c.Delete(dir+"/"+node, -1) })
		if node == p.node || one != nil && !is(one, zk.ErrNoNode) {
			err = one
		}
	}
	return err
}

// retry asks until there is an answer or ctx ends. Once an answer went missing, a loss
// is taken for what that try has done.
func retry(ctx context.Context, ask func(context.Context) error) error {
	sure := true
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		try, cancel := context.WithTimeout(ctx, releaseTry)
		err := ask(try)
		cancel()
		switch {
		case err == nil, errors.Is(err, backend.ErrLost) && !sure:
			return nil
		case !passing(err):
			return err
		}
		sure = sure && answered(err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// Lost tells when the session, the node or the hold has ended.
func (h *hold) Lost() <-chan error { return h.lost }

// KeepOpen lists nothing: the lock is elsewhere.
func (h *hold) KeepOpen() []*os.File { return nil }
