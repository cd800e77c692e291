package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
	"github.com/dlock/dlock/internal/boottime"
)

// hold is a lock that the kernel holds for this process and its guard.
type hold struct {
	*contender
	lost         chan error
	stopWatching func() // nil where nothing watches

	mu sync.Mutex // held while the files are in use: a renewal may still be under way at the release
}

// Grant tells token and fence; the lease has no end, and an interval for checks.
func (h *hold) Grant() backend.Grant {
	return backend.Grant{Token: h.req.Token, Fence: h.granted.Fence, Lease: h.lease()}
}

func (h *hold) lease() backend.Lease {
	return backend.Lease{Sent: boottime.Now(), Every: h.req.TTL / 3}
}

// Renew checks that the files still are where others look for them, and that the
// record still has this hold: somebody may have removed the ones or revoked the other.
func (h *hold) Renew(ctx context.Context) (backend.Lease, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.public == nil {
		return backend.Lease{}, errReleased
	}
	lease := h.lease()
	err := h.checkPlace()
	if err == nil {
		err = h.view(ctx, h.checkRecord)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: %w", backend.ErrLost, err)
	}
	if err != nil {
		return backend.Lease{}, err
	}
	if d, name := h.publicFile(); !inPlace(d, name, h.public) {
		return backend.Lease{}, fmt.Errorf("%w: somebody removed or replaced the lock file %s/%s", backend.ErrLost, d.Name(), name)
	}
	return lease, nil
}

// checkRecord tells whether the record still has this hold.
func (h *hold) checkRecord(s *state) error {
	i := slices.IndexFunc(s.rec.Holders, func(r record.Holder) bool { return r.Token == h.req.Token })
	switch {
	case i < 0:
		return fmt.Errorf("%w: somebody changed the record %s/%s", backend.ErrLost, h.state.Name(), recordName)
	case s.rec.Holders[i].Revoked:
		return backend.ErrRevoked
	}
	return nil
}

// Lost watches the record, so that a revocation is noticed at once.
func (h *hold) Lost() <-chan error {
	if h.lost != nil {
		return h.lost
	}
	h.lost = make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	h.stopWatching = cancel
	go h.reportLoss(ctx)
	return h.lost
}

// watchDelay is how long a hold lasts before it is worth a watch: most short commands
// end before, and need the processor themselves.
const watchDelay = 100 * time.Millisecond

// reportLoss looks at the hold at each change, until it is lost or ctx ends.
func (h *hold) reportLoss(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(watchDelay):
	}
	w := newWatch(h.state) // without a watch, renewals will notice
	defer w.close()
	w.mark() // it may have been revoked before the watch began
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.changed:
		}
		_, err := h.Renew(ctx)
		if errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrRevoked) {
			h.lost <- err
			return
		}
	}
}

// KeepOpen lists the two kernel locks.
func (h *hold) KeepOpen() []*os.File { return []*os.File{h.live, h.public} }

// Release gives the kernel locks up, whatever becomes of the record: without its
// live file the hold counts for nobody. Only a tail needs the record.
func (h *hold) Release(ctx context.Context, tail time.Duration) error {
	if h.stopWatching != nil {
		h.stopWatching()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.public == nil {
		return errReleased
	}
	err := h.leave(ctx, h.req.Token, tail)
	h.abandon() // after the record: who is killed in between must leave the tail
	if tail <= 0 && !errors.Is(err, backend.ErrLost) {
		return nil
	}
	return err
}

// errReleased is the answer to whoever uses a hold after its release.
var errReleased = fmt.Errorf("%w: it was released", backend.ErrLost)

// detached is a hold that only the record has.
type detached struct {
	*lock // nil once released
	token string
	ttl   time.Duration
	fence uint64
	lease backend.Lease // zero in an attached one until it was renewed
}

// Grant tells token, fence and lease.
func (d *detached) Grant() backend.Grant {
	return backend.Grant{Token: d.token, Fence: d.fence, Lease: d.lease}
}

// Renew extends the lease in the record.
func (d *detached) Renew(ctx context.Context) (backend.Lease, error) {
	if d.lock == nil {
		return backend.Lease{}, errReleased
	}
	sent := boottime.Now()
	err := d.change(ctx, func(s *state) error {
		h, err := s.rec.Renew(s.now, d.token, d.ttl)
		d.lease = backend.Lease{Sent: sent, TTL: h.Expires.Sub(s.now), Every: h.TTL / 3}
		return err
	})
	return d.lease, err
}

// Release takes the hold out of the record.
func (d *detached) Release(ctx context.Context, tail time.Duration) error {
	if d.lock == nil {
		return errReleased
	}
	err := d.leave(ctx, d.token, tail)
	if err == nil || errors.Is(err, backend.ErrLost) { // else it may be tried again
		d.close()
		d.lock = nil
	}
	return err
}

// leave takes the hold of token out of the record, or makes it a tail.
func (l *lock) leave(ctx context.Context, token string, tail time.Duration) error {
	return l.change(ctx, func(s *state) error { return s.rec.Leave(s.now, token, tail) })
}

// Lost is nil: nothing reports the end of a detached hold.
func (d *detached) Lost() <-chan error { return nil }

// KeepOpen is empty: no process holds the lock.
func (d *detached) KeepOpen() []*os.File { return nil }
