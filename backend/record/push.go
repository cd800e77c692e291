package record

import (
	"time"

	"github.com/dlock/dlock/backend"
)

// Push is how a service that wakes its waiters passes a lock on: it is offered to
// whoever is next in line. An offer is a short hold that its waiter has to renew to
// keep, since a lease can only be reckoned from one's own request. The scripts of
// backend/redis do the same in Lua, and are compared with this.
type Push struct {
	Offer   time.Duration                    // how long an offer stands
	Unheard time.Duration                    // how long a waiter that does not hear keeps its place
	Hears   func(token string) bool          // whether a message would reach the waiter
	Tell    func(token string, offered bool) // sends it one: the lock is offered, or it is the head of the line
}

// Take is Record.Take for such a service: what has become free since goes to those in
// line first, and a waiter that does not hear is passed. A place is given only to
// who hears; otherwise it fails with backend.ErrDenied.
func (p Push) Take(r *Record, now Time, c Claim) (Holder, error) {
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
	if r.place(c.Token) < 0 {
		if len(r.Queue) > 0 && c.Place == 0 {
			p.Promote(r, now, c.Seed)
		}
		switch {
		case len(r.Queue) == 0 && r.admits(0, c.Mode):
			return r.grant(now, c), nil
		case c.Place == 0:
			return Holder{}, &backend.BusyError{Holders: r.live(now), Ahead: len(r.Queue)}
		case !p.Hears(c.Token):
			return Holder{}, backend.ErrDenied
		}
	}
	if c.Place > 0 {
		r.wait(now, c)
	}
	if p.promote(r, now, c.Seed, c.Token) {
		return *r.holder(c.Token), nil
	}
	return Holder{}, &backend.BusyError{Holders: r.live(now), Ahead: r.place(c.Token)}
}

// Promote offers the lock to the waiters whose turn it is, and tells the first that has
// to stay that it is the head of the line. It follows every change that may let
// somebody in.
func (p Push) Promote(r *Record, now Time, seed uint64) { p.promote(r, now, seed, "") }

// promote is Promote in a request of the waiter me, who needs no message and no offer;
// it tells whether me got in.
func (p Push) promote(r *Record, now Time, seed uint64, me string) bool {
	r.Expire(now)
	for i := 0; i < len(r.Queue); {
		w := r.Queue[i]
		open := r.admits(0, w.Mode)
		switch {
		case w.Token == me && open:
			p.enter(r, now, w, w.TTL, seed)
			return true
		case w.Token == me:
			return false
		case !p.Hears(w.Token):
			r.Queue[i].Expires = min(w.Expires, now.Add(p.Unheard))
			i++
		case open:
			p.Tell(w.Token, true)
			p.enter(r, now, w, min(w.TTL, p.Offer), seed)
			r.holder(w.Token).Offered = true
		default:
			p.Tell(w.Token, false)
			return false
		}
	}
	return false
}

// enter makes a waiter a holder for d; a renewal adds its whole TTL.
func (p Push) enter(r *Record, now Time, w Waiter, d time.Duration, seed uint64) {
	r.Quit(w.Token)
	r.grant(now, Claim{Token: w.Token, Mode: w.Mode, Owner: w.Owner, TTL: w.TTL, Leased: true, Seed: seed})
	r.holder(w.Token).Expires = now.Add(d)
}
