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
	var lists [][]redis.NodeHolder
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
	r.holders, most = b.merge(lists, b.majority()-unknown)
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
