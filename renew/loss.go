package renew

import (
	"errors"
	"fmt"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// ErrLate means that the lease was not renewed in time, for whatever reason.
var ErrLate = errors.New("the lease could not be renewed in time")

// Loss says that the lock is lost or about to be: what runs under it has to stop now,
// whatever comes after.
type Loss struct {
	// Err is or wraps backend.ErrLost or backend.ErrRevoked when the service has said
	// so, else ErrLate, and then the last error of a renewal as well.
	Err error
	// Kill is the moment of SIGKILL, if SIGTERM goes out now: it is now, if it is late.
	Kill boottime.Instant
	// End is when somebody else may hold the lock; zero where the lease has no end.
	End boottime.Instant
}

// judge looks at the clock and hears the news, and tells whether the lease is lost.
// The clock comes first: who has slept until it is time to kill does that, and does
// not ask whether a renewal has come through.
func (k *Keeper) judge(now boottime.Instant, e event) *Loss {
	if l := k.Lease(); l.Ends() && now >= l.KillAt() {
		return k.late(now, l)
	}
	if err := k.hear(now, e); err != nil {
		return k.notOurs(now, err)
	}
	if l := k.Lease(); l.Ends() && now >= l.StopAt(k.cfg.Grace) {
		return k.late(now, l)
	}
	return nil
}

// hear takes in the event and all other answers that are there, and returns the
// service's word that the hold has ended.
func (k *Keeper) hear(now boottime.Instant, e event) error {
	if e.gone != nil {
		return e.gone
	}
	a := e.answer
	if a == nil {
		a = k.tries.next()
	}
	for ; a != nil; a = k.tries.next() {
		if err := k.heed(now, *a); err != nil {
			return err
		}
	}
	return nil
}

// late is the loss of a lease that runs out.
func (k *Keeper) late(now boottime.Instant, l backend.Lease) *Loss {
	err := ErrLate
	if k.tries.failure != nil {
		err = fmt.Errorf("%w: %w", ErrLate, k.tries.failure)
	}
	return &Loss{Err: err, Kill: max(now, l.KillAt()), End: l.Deadline()}
}

// notOurs is the loss of a hold that the service says has ended.
func (k *Keeper) notOurs(now boottime.Instant, err error) *Loss {
	l := k.Lease()
	kill := now.Add(l.ShortGrace(k.cfg.Grace))
	if !l.Ends() {
		return &Loss{Err: err, Kill: kill}
	}
	return &Loss{Err: err, Kill: max(now, min(kill, l.KillAt())), End: l.Deadline()}
}
