package record

import (
	"fmt"
	"slices"
	"time"

	"github.com/dlock/dlock/backend"
)

// Claim is one wish to hold the lock.
type Claim struct {
	Token  string
	Mode   backend.Mode
	Owner  backend.Owner
	TTL    time.Duration
	Leased bool          // the hold ends after TTL; else it has no end of its own (a kernel lock)
	Seed   uint64        // the fence to start from where none is known: the service's time in µs
	Place  time.Duration // above zero: wait in line if not admitted, and keep the place for that long
}

// Take gives the lock to c if the holders admit it and no waiter is passed by, or
// fails with a *backend.BusyError. With a Place, c is in line after that: at the end,
// or where it was if it asked in time. Asking again as a holder gives the same hold
// and changes nothing; the token of a tail has lost it.
func (r *Record) Take(now Time, c Claim) (Holder, error) {
	if err := c.check(); err != nil {
		return Holder{}, err
	}
	r.Expire(now)
	if h := r.holder(c.Token); h != nil {
		return h.again(c)
	}
	if err := r.checkMode(c); err != nil {
		return Holder{}, err
	}
	ahead := r.place(c.Token)
	if ahead < 0 {
		ahead = len(r.Queue)
	}
	if !r.admits(ahead, c.Mode) {
		busy := &backend.BusyError{Holders: r.live(now), Ahead: ahead}
		if c.Place > 0 {
			r.wait(now, c)
		}
		return Holder{}, busy
	}
	r.Quit(c.Token)
	return r.grant(now, c), nil
}

// Quit takes token out of the line, if it is there.
func (r *Record) Quit(token string) {
	if i := r.place(token); i >= 0 {
		r.Queue = slices.Delete(r.Queue, i, i+1)
	}
}

// check refuses what is no claim at all.
func (c Claim) check() error {
	switch {
	case c.Token == "":
		return fmt.Errorf("%w: the token is empty", backend.ErrInvalid)
	case !c.Mode.Valid():
		return fmt.Errorf("%w mode %q", backend.ErrInvalid, c.Mode)
	case c.Leased && c.TTL <= 0:
		return fmt.Errorf("%w: a lease of %v", backend.ErrInvalid, c.TTL)
	}
	return nil
}

// again answers a claim that was granted before.
func (h *Holder) again(c Claim) (Holder, error) {
	switch {
	case h.Tail:
		return Holder{}, backend.ErrLost
	case h.Mode != c.Mode:
		return Holder{}, fmt.Errorf("%w: the token holds the lock as %v, not as %v", backend.ErrInvalid, h.Mode, c.Mode)
	}
	return *h, nil
}

// checkMode refuses a claim that contradicts what is there: another number of slots
// than anyone's, or another mode than its own in line.
func (r *Record) checkMode(c Claim) error {
	if i := r.place(c.Token); i >= 0 && r.Queue[i].Mode != c.Mode {
		return fmt.Errorf("%w: the token waits for the lock as %v, not as %v", backend.ErrInvalid, r.Queue[i].Mode, c.Mode)
	}
	if n := r.slots(); n != 0 && c.Mode.Kind == backend.Slots && n != c.Mode.N {
		return fmt.Errorf("%w: %d slots asked for, but the lock has %d now", backend.ErrInvalid, c.Mode.N, n)
	}
	return nil
}

// slots is the number of slots in force, by the holders or by the line; 0 if none is.
func (r *Record) slots() int {
	for _, h := range r.Holders {
		if h.Mode.Kind == backend.Slots {
			return h.Mode.N
		}
	}
	for _, w := range r.Queue {
		if w.Mode.Kind == backend.Slots {
			return w.Mode.N
		}
	}
	return 0
}

// admits tells whether mode may hold beside the holders and the first ahead waiters.
// So readers next to each other enter together and free slots go out in order. Nobody
// passes a waiter that has to stay: what keeps it out keeps out all behind it, since
// only holds of one and the same mode go together.
func (r *Record) admits(ahead int, mode backend.Mode) bool {
	for _, h := range r.Holders {
		if h.Mode != mode {
			return false
		}
	}
	for _, w := range r.Queue[:ahead] {
		if w.Mode != mode {
			return false
		}
	}
	switch inside := len(r.Holders) + ahead; mode.Kind {
	case backend.Shared:
		return true
	case backend.Slots:
		return inside < mode.N
	default:
		return inside == 0
	}
}

// wait puts c at the end of the line, or keeps its place there for longer.
func (r *Record) wait(now Time, c Claim) {
	until := now.Add(c.Place)
	if i := r.place(c.Token); i >= 0 {
		r.Queue[i].Expires = max(r.Queue[i].Expires, until)
		return
	}
	r.Queue = append(r.Queue, Waiter{Token: c.Token, Mode: c.Mode, Owner: c.Owner, Since: now, TTL: c.TTL, Expires: until})
}

// grant makes c a holder, with a fence of its own.
func (r *Record) grant(now Time, c Claim) Holder {
	h := Holder{Token: c.Token, Mode: c.Mode, Owner: c.Owner, Fence: r.nextFence(c.Seed), Since: now, TTL: c.TTL}
	if c.Leased {
		h.Expires = now.Add(c.TTL)
	}
	r.Holders = append(r.Holders, h)
	return h
}
