package redlock

import (
	"cmp"
	"slices"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/redis"
)

// busy is what servers say together that refuse a lock.
type busy struct {
	holders []backend.Holder
	ahead   int   // in line, as the one says that counts most
	first   bool  // a server knows nobody before us
	ticket  int64 // the last that was given out
	left    time.Duration
	why     string
	taken   bool // somebody has a majority, or is before us in line
	known   bool // all has been said that is needed to know that nobody has
}

// busy puts the answers together. Who is not seen on a majority of the servers, as far as
// that can be told, is no holder.
func (b *Backend) busy(answers []answer[redis.Answer]) (r busy) {
	var lists [][]backend.Holder
	var lefts []time.Duration
	yes := 0
	for _, a := range answers {
		switch v := a.value; {
		case a.err != nil:
			continue
		case v.Held:
			yes++
		default:
			r.first = r.first || v.Ahead == 0
			r.ahead = max(r.ahead, v.Ahead)
			lists, lefts = append(lists, v.Holders), append(lefts, v.Left)
			if v.Why == redis.Foreign || r.why == "" {
				r.why = v.Why
			}
		}
		r.ticket = max(r.ticket, a.value.Ticket)
	}
	unknown := len(b.nodes) - yes - len(lists)
	most := 0
	r.holders, most = merge(lists, b.majority()-unknown)
	r.taken = most >= b.majority() || r.ahead > 0
	r.known = most+unknown < b.majority()
	// As many of those who refuse have to be free as are missing from a majority.
	slices.SortFunc(lefts, func(x, y time.Duration) int { return cmp.Compare(uint64(x), uint64(y)) }) // below zero: last
	if i := b.majority() - yes - 1; i >= 0 && i < len(lefts) {
		r.left = lefts[i]
	}
	return r
}

// split tells that the lock is taken in parts.
func (r busy) split() bool { return !r.taken && r.known }

func (r busy) error() error { return &backend.BusyError{Holders: r.holders, Ahead: r.ahead} }

// merge lists the holders that at least so many servers name, the oldest first, and tells
// how many name the one that most do. The servers' marks on a holder are put together, its
// end is that on the last but as many servers, and its fence that of most of them.
func merge(lists [][]backend.Holder, least int) (holders []backend.Holder, most int) {
	byToken := map[string][]backend.Holder{}
	for _, list := range lists {
		for _, h := range list {
			byToken[h.Token] = append(byToken[h.Token], h)
		}
	}
	for _, views := range byToken {
		most = max(most, len(views))
		if len(views) >= least {
			holders = append(holders, merged(views, max(1, least)))
		}
	}
	slices.SortStableFunc(holders, func(a, b backend.Holder) int { return int(b.Held - a.Held) })
	return holders, most
}

func merged(views []backend.Holder, least int) backend.Holder {
	fences := map[uint64]int{}
	slices.SortFunc(views, func(a, b backend.Holder) int { return int(b.Left - a.Left) })
	h := views[least-1]
	for _, v := range views {
		h.Revoked, h.Tail = h.Revoked || v.Revoked, h.Tail || v.Tail
		h.Held = max(h.Held, v.Held)
		if h.Owner.Kind == backend.Foreign { // a server that has lost the record
			h.Owner = v.Owner
		}
		if fences[v.Fence]++; fences[v.Fence] > fences[h.Fence] || fences[v.Fence] == fences[h.Fence] && v.Fence > h.Fence {
			h.Fence = v.Fence
		}
	}
	return h
}
