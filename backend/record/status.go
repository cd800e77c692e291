package record

import "github.com/dlock/dlock/backend"

// Status shows the lock of that name as it is now, without what has ended. It
// leaves the record as it is.
func (r *Record) Status(name string, now Time) backend.Status {
	s := backend.Status{Name: name, Holders: r.live(now), Fence: r.Fence}
	for _, w := range r.Queue {
		if !w.Expires.over(now) {
			s.Waiters = append(s.Waiters, w.Status(now))
		}
	}
	return s
}

// live shows the holds that have not ended.
func (r *Record) live(now Time) []backend.Holder {
	var hs []backend.Holder
	for _, h := range r.Holders {
		if !h.Expires.over(now) {
			hs = append(hs, h.Status(now))
		}
	}
	return hs
}

// Status shows the hold as it is now.
func (h Holder) Status(now Time) backend.Holder {
	s := backend.Holder{
		Token:   h.Token,
		Owner:   h.Owner,
		Mode:    h.Mode,
		Fence:   h.Fence,
		Held:    now.Sub(h.Since),
		Leased:  h.Expires != 0,
		Revoked: h.Revoked,
		Tail:    h.Tail,
	}
	if s.Leased {
		s.Left = h.Expires.Sub(now)
	}
	return s
}

// Status shows the place in line as it is now.
func (w Waiter) Status(now Time) backend.Waiter {
	return backend.Waiter{Owner: w.Owner, Mode: w.Mode, Waiting: now.Sub(w.Since)}
}
