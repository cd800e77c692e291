package record

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlock/dlock/backend"
)

// Renew makes the hold of token last for ttl from now, or for its own TTL if ttl is
// 0; a ttl above 0 becomes its own. It never shortens a hold, so that a renewal
// that comes late is harmless, and gives no end to one that has none. It fails with
// ErrLost when token does not hold the lock, and with ErrRevoked when it must stop.
func (r *Record) Renew(now Time, token string, ttl time.Duration) (Holder, error) {
	h, err := r.held(now, token)
	switch {
	case err != nil:
		return Holder{}, err
	case h.Revoked:
		return Holder{}, backend.ErrRevoked
	case h.Expires == 0:
		return *h, nil
	}
	if ttl > 0 {
		h.TTL = ttl
	}
	h.Expires = max(h.Expires, now.Add(h.TTL))
	h.Offered = false
	return *h, nil
}

// Release ends the hold of token, a revoked one too, or fails with ErrLost.
func (r *Record) Release(now Time, token string) error {
	if _, err := r.held(now, token); err != nil {
		return err
	}
	r.remove(token)
	return nil
}

// Leave turns the hold of token into a tail that ends after the time given, be that
// earlier or later than the lease would have; from then on the token holds nothing.
// A revoked hold leaves no tail, since somebody wants the lock free, and neither does
// a tail of no length: they are released. It fails with ErrLost as Release does.
func (r *Record) Leave(now Time, token string, tail time.Duration) error {
	h, err := r.held(now, token)
	if err != nil {
		return err
	}
	if h.Revoked || tail <= 0 {
		r.remove(token)
		return nil
	}
	h.Tail, h.Expires = true, now.Add(tail)
	return nil
}

// Revoke ends the one hold whose token begins with prefix, and returns it. It is gone
// at once if nothing runs under it (a detached hold, a tail) or if immediately is
// set; else it is marked, and stays until its run has stopped. It fails with
// ErrLost when no token begins so, and with ErrInvalid when several do.
func (r *Record) Revoke(now Time, prefix string, immediately bool) (Holder, error) {
	r.Expire(now)
	h, err := r.match(prefix)
	if err != nil {
		return Holder{}, err
	}
	if immediately || h.Tail || h.Owner.Kind == backend.Detached {
		gone := *h
		r.remove(gone.Token)
		return gone, nil
	}
	h.Revoked = true
	return *h, nil
}

// held drops what has ended and finds the hold that token may still speak for.
func (r *Record) held(now Time, token string) (*Holder, error) {
	r.Expire(now)
	h := r.holder(token)
	if h == nil || h.Tail {
		return nil, backend.ErrLost
	}
	return h, nil
}

// match finds the one hold whose token begins with prefix.
func (r *Record) match(prefix string) (*Holder, error) {
	if prefix == "" {
		return nil, fmt.Errorf("%w: the token is empty", backend.ErrInvalid)
	}
	var found *Holder
	for i := range r.Holders {
		h := &r.Holders[i]
		if !strings.HasPrefix(h.Token, prefix) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%w: several holders' tokens begin with %q", backend.ErrInvalid, prefix)
		}
		found = h
	}
	if found == nil {
		return nil, backend.ErrLost
	}
	return found, nil
}

// remove ends the hold of token.
func (r *Record) remove(token string) {
	r.Holders = slices.DeleteFunc(r.Holders, func(h Holder) bool { return h.Token == token })
}
