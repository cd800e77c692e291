package redis

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// hold is a lock that we have, or a detached one that we may speak for.
type hold struct {
	b     *Backend
	name  string
	keys  lockKeys
	token string
	fence uint64
	ttl   time.Duration
	lease backend.Lease // as granted; of a detached hold that was found, unknown
}

// Grant tells token, fence and the lease as it was granted.
func (h *hold) Grant() backend.Grant {
	return backend.Grant{Token: h.token, Fence: h.fence, Lease: h.lease}
}

// leaseOf is the lease that an answer grants to a request sent at that time.
func (h *hold) leaseOf(sent boottime.Instant, r reply) backend.Lease {
	return backend.Lease{Sent: sent, TTL: r.ms(3), Every: h.ttl / 3}
}

// Renew extends the lease if the token still holds the lock. With too few replicas it
// fails, though the server has the new end: the old deadline stays.
func (h *hold) Renew(ctx context.Context) (backend.Lease, error) {
	sent := h.b.clock()
	r, err := h.b.runReplicated(ctx, renewScript, h.keys, h.token, h.ttl.Milliseconds())
	if err == nil {
		err = r.refusal()
	}
	if err != nil {
		return backend.Lease{}, err
	}
	h.b.policy.Do(h.b.checkPolicy)
	return h.leaseOf(sent, r), nil
}

// releaseTry is how long one try to release may take.
const releaseTry = 2 * time.Second

// Release gives the lock back. It tries until ctx ends. Once an answer went missing,
// "not held" is taken for what that try has done.
func (h *hold) Release(ctx context.Context, tail time.Duration) error {
	sure := true
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := h.release(ctx, tail)
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

func (h *hold) release(ctx context.Context, tail time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, releaseTry)
	defer cancel()
	r, err := h.b.run(ctx, releaseScript, h.keys, h.token, max(0, tail.Milliseconds()))
	if err != nil {
		return err
	}
	return r.refusal()
}

// Lost is nil: Redis does not tell.
func (h *hold) Lost() <-chan error { return nil }

// KeepOpen lists nothing: the lock is elsewhere.
func (h *hold) KeepOpen() []*os.File { return nil }
