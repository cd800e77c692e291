package cmd

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// outerHold is the hold of a dlock run above this one, under which this one runs.
type outerHold struct {
	backend backend.Backend
	name    string
	grant   backend.Grant
}

// outer finds the hold of a living ancestor, or returns nil. It asks the lock service
// and the kernel; variables can outlive what they tell of.
func (a *app) outer(b backend.Backend, o *runOptions) (backend.Hold, error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitForServiceNow)
	defer cancel()
	list, err := b.Inspect(ctx, o.name)
	if err != nil || len(list) != 1 {
		return nil, err
	}
	h, found := ancestor(list[0].Holders)
	if !found {
		return nil, nil
	}
	req := o.request("")
	if !h.Mode.Covers(req.Mode) {
		return nil, a.selfDeadlock(req, h)
	}
	return &outerHold{b, o.name, backend.Grant{
		Token: h.Token, Fence: h.Fence,
		Lease: backend.Lease{Sent: boottime.Now(), Every: time.Duration(o.ttl) / 3},
	}}, nil
}

// Grant is the outer run's.
func (h *outerHold) Grant() backend.Grant { return h.grant }

// Renew leaves the renewing to the outer run, and asks whether it still holds.
func (h *outerHold) Renew(ctx context.Context) (backend.Lease, error) {
	lease := h.grant.Lease
	lease.Sent = boottime.Now()
	list, err := h.backend.Inspect(ctx, h.name)
	if err != nil {
		return backend.Lease{}, err
	}
	for _, s := range list {
		i := slices.IndexFunc(s.Holders, func(o backend.Holder) bool { return o.Token == h.grant.Token && !o.Tail })
		if i >= 0 {
			return lease, nil
		}
	}
	return backend.Lease{}, fmt.Errorf("%w by the outer dlock run", backend.ErrLost)
}

// Release leaves the lock to the outer run.
func (h *outerHold) Release(context.Context, time.Duration) error { return nil }

// Lost is nil: the outer run is told, and stops us.
func (h *outerHold) Lost() <-chan error { return nil }

// KeepOpen is empty: the outer run's guard has what there is.
func (h *outerHold) KeepOpen() []*os.File { return nil }
