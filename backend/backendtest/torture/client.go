package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest/torture/resource"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/renew"
)

// clientTTL is long enough for a client of this process to see its end coming, also when
// the machine is slow: nobody guards it.
const clientTTL = 5 * time.Second

// client is a contender within this process.
func (r *run) client(contender int) {
	random := r.random(contender)
	b := r.Service.Open(r.Service.Ways[contender%len(r.Service.Ways)])
	defer b.Close()
	for !r.stopped() {
		r.gate.RLock()
		if err := r.clientHold(b, contender, random); err != nil {
			r.t.Errorf("client %d: %v", contender, err)
		}
		r.gate.RUnlock()
	}
}

// clientHold takes the lock, visits the resource and gives the lock back.
func (r *run) clientHold(b backend.Backend, contender int, random *rand.Rand) error {
	id := uuid.NewString()
	req := backend.Request{
		Name: lockName, Token: uuid.NewString(), Mode: anyMode(random), TTL: clientTTL,
		Owner: backend.Owner{Kind: backend.Run, Host: "torture"},
	}
	if r.ExclusiveClients {
		req.Mode = backend.Mode{Kind: backend.Exclusive}
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), 30*time.Second, errLate)
	defer cancel()
	if random.IntN(10) == 0 { // it loses patience
		ctx, cancel = context.WithTimeoutCause(ctx, between(random, 0, 50*time.Millisecond), errLate)
		defer cancel()
	}
	h := r.begin(id, contender)
	taken, err := b.Acquire(ctx, req)
	if err != nil {
		r.finish(h, false)
		return unexpected(err)
	}
	r.tally.holds.Add(1)
	keeper := renew.Keep(taken, taken.Grant().Lease, renew.Config{Lost: taken.Lost()})
	clean, err := r.visit(keeper, resource.Hold{ID: id, Token: taken.Grant().Token, Fence: taken.Grant().Fence, Mode: req.Mode},
		between(random, 0, 3*time.Millisecond))
	lease := keeper.Stop()
	release, done := context.WithTimeout(context.Background(), releaseLimit(lease))
	defer done()
	released := taken.Release(release, 0)
	r.finish(h, clean && released == nil)
	return err
}

var errLate = errors.New("late")

// releaseLimit is how long a release may be tried.
func releaseLimit(l backend.Lease) time.Duration {
	if !l.Ends() {
		return 10 * time.Second
	}
	return max(0, min(10*time.Second, l.Deadline().Sub(boottime.Now())))
}

// unexpected is an error of Acquire that no fault explains.
func unexpected(err error) error {
	busy := (*backend.BusyError)(nil)
	if errors.Is(err, errLate) || errors.Is(err, backend.ErrUnavailable) || errors.As(err, &busy) || errors.Is(err, backend.ErrRevoked) || errors.Is(err, backend.ErrLost) {
		return nil
	}
	return err
}

// visit stays in the resource for d, or until the lock is lost. It reports whether it left
// in its own time.
func (r *run) visit(k *renew.Keeper, h resource.Hold, d time.Duration) (clean bool, err error) {
	if l := k.Lease(); l.Ends() && l.KillAt() <= boottime.Now() {
		return false, nil // it came too late
	}
	v, err := r.resource.Enter(h)
	if err != nil {
		return false, err
	}
	select {
	case <-k.Lost():
	case <-time.After(d):
		clean = true
		if err := v.Write(); err != nil {
			return false, err
		}
	}
	return clean, v.Leave()
}
