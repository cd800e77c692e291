package redlock

import (
	"cmp"
	"slices"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/redis"
)

// views are what servers say of one hold. One that has different slots on them is as many
// holds, and at most one of those can be on a majority.
type views []redis.NodeHolder

// merge puts the servers' holders together: those that at least so many servers name, or,
// where these cannot all be holders, those that a majority names. No two of the latter
// exclude each other, however far apart the answers are: some server named both at once.
func (b *Backend) merge(lists [][]redis.NodeHolder, least int) (holders []backend.Holder, most int) {
	holders, most = merge(lists, least)
	if !together(holders) {
		holders, _ = merge(lists, b.majority())
	}
	return holders, most
}

// together tells whether all of them can hold the lock at a time.
func together(holders []backend.Holder) bool {
	for _, h := range holders {
		if h.Mode != holders[0].Mode {
			return false
		}
	}
	if len(holders) == 0 {
		return true
	}
	switch mode := holders[0].Mode; mode.Kind {
	case backend.Shared:
		return true
	case backend.Slots:
		return len(holders) <= mode.N
	}
	return len(holders) == 1
}

// merge lists the holds that at least so many servers name, the oldest first, and tells
// how many name the one that most do.
func merge(lists [][]redis.NodeHolder, least int) (holders []backend.Holder, most int) {
	type place struct {
		token string
		slot  int
	}
	byPlace := map[place]views{}
	for _, list := range lists {
		for _, h := range list {
			p := place{h.Token, h.Slot}
			byPlace[p] = append(byPlace[p], h)
		}
	}
	best := map[string]views{}
	for p, v := range byPlace {
		most = max(most, len(v))
		if len(v) >= least && len(v) > len(best[p.token]) {
			best[p.token] = v
		}
	}
	for _, v := range best {
		holders = append(holders, v.hold(max(1, least)))
	}
	slices.SortStableFunc(holders, func(a, b backend.Holder) int { return cmp.Compare(b.Held, a.Held) })
	return holders, most
}

// hold is the views in one. The servers' marks are put together, its end is that on the
// last but as many servers, and its fence that of most of them.
func (v views) hold(least int) backend.Holder {
	var fences []uint64
	slices.SortFunc(v, func(a, b redis.NodeHolder) int { return cmp.Compare(b.Left, a.Left) })
	h := v[least-1].Holder
	for _, one := range v {
		h.Revoked, h.Tail = h.Revoked || one.Revoked, h.Tail || one.Tail
		h.Held = max(h.Held, one.Held)
		if h.Owner.Kind == backend.Foreign { // a server that has lost the record
			h.Owner = one.Owner
		}
		fences = append(fences, one.Fence)
	}
	h.Fence = mostNamed(fences)
	return h
}

// mostNamed is the fence that most servers name, or the largest of those. One that was late
// may have a larger number of its own, until it is told the one that was given out.
func mostNamed(fences []uint64) (most uint64) {
	times := map[uint64]int{}
	for _, f := range fences {
		if times[f]++; times[f] > times[most] || times[f] == times[most] && f > most {
			most = f
		}
	}
	return most
}
