// Package renew keeps one lease alive and says when it is lost. It knows no service:
// all that it needs is somebody to ask for a renewal.
//
// It trusts neither the renewals, which may fail or hang, nor Go's timers, which
// stand still while the machine sleeps: the deadline is looked at in a goroutine that
// does nothing slow, on a clock that counts sleep.
package renew

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// longestNap is how long a timer may run while there is a deadline: after the machine
// has slept, a timer has as long to go as it had before.
const longestNap = time.Second

// Renewer asks for one renewal. A backend.Hold is one.
type Renewer interface {
	// Renew extends the lease. ErrLost and ErrRevoked are final; any other error
	// means that the answer is unknown. It may be called again before an earlier
	// call has returned, once the context of that one is done.
	Renew(ctx context.Context) (backend.Lease, error)
}

// Config is what a Keeper needs besides the lease. The functions are called one at a
// time, from the goroutine that keeps the deadline: they must not block, and not call
// Check or Stop.
type Config struct {
	Grace   time.Duration           // the SIGTERM to SIGKILL gap that is wanted
	Lost    <-chan error            // the service's own word that the hold has ended; may be nil
	OnLease func(backend.Lease)     // told each new lease, the first one excepted
	OnError func(error)             // told the first of a row of failures, and nil when the row ends
	Now     func() boottime.Instant // boottime.Now if nil
}

// Keeper renews one lease until it is lost or Stop is called.
type Keeper struct {
	cfg     Config
	renewer Renewer
	ctx     context.Context // of all renewals
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the goroutine has ended
	checks  chan struct{}
	lost    chan Loss
	lease   atomic.Pointer[backend.Lease] // written by the goroutine alone
	tries   tries
}

// Keep starts to keep lease alive.
func Keep(r Renewer, lease backend.Lease, cfg Config) *Keeper {
	k := &Keeper{
		cfg:     cfg.withDefaults(),
		renewer: r,
		ended:   make(chan struct{}),
		checks:  make(chan struct{}),
		lost:    make(chan Loss, 1),
	}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.lease.Store(&lease)
	k.tries = newTries(lease)
	go k.run()
	return k
}

func (c Config) withDefaults() Config {
	if c.Now == nil {
		c.Now = boottime.Now
	}
	if c.OnLease == nil {
		c.OnLease = func(backend.Lease) {}
	}
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	return c
}

// Lost delivers the loss of the lease: once, or never.
func (k *Keeper) Lost() <-chan Loss { return k.lost }

// Lease is the lease as it is known now.
func (k *Keeper) Lease() backend.Lease { return *k.lease.Load() }

// Check looks at the clock now, as is due when the process was stopped for a while.
// When it returns, a lease that ran out meanwhile has been reported as lost.
func (k *Keeper) Check() {
	// The second send succeeds after the goroutine has dealt with the first.
	for range 2 {
		select {
		case k.checks <- struct{}{}:
		case <-k.ended:
			return
		}
	}
}

// Stop ends the renewals and returns the last lease known. A renewal that is on its
// way is cancelled, but not waited for. After Stop nothing is reported any more.
func (k *Keeper) Stop() backend.Lease {
	k.cancel()
	<-k.ended
	return k.Lease()
}

// event is what woke the goroutine; empty if it only is time to look at the clock.
type event struct {
	answer *answer // of a renewal
	gone   error   // reported by the service
}

// run does everything that happens after Keep.
func (k *Keeper) run() {
	defer close(k.ended)
	defer k.cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var e event
		select {
		case <-k.ctx.Done():
			return
		case <-timer.C:
		case <-k.checks:
		case a := <-k.tries.answers:
			e.answer = &a
		case e.gone = <-k.cfg.Lost:
			k.cfg.Lost = nil // it has said all that it had to say, or was closed
		}
		now := k.cfg.Now()
		if loss := k.judge(now, e); loss != nil {
			k.lost <- *loss
			return
		}
		k.proceed(now)
		timer.Reset(k.nap(now))
	}
}

// nap is how long there is nothing to do.
func (k *Keeper) nap(now boottime.Instant) time.Duration {
	d := time.Hour
	if at := k.tries.wake(); !at.IsZero() {
		d = min(d, at.Sub(now))
	}
	if l := k.Lease(); l.Ends() {
		d = min(d, l.StopAt(k.cfg.Grace).Sub(now), longestNap)
	}
	return d
}
