// Package record is the state of one lock as data: who holds it, who waits in which
// order, and which fence was given out last. Its operations are the rules of a lease,
// as functions of the record, the time and the request alone: no I/O, no clock, no
// chance. A service that can replace a record atomically has all of them at once.
//
// An operation drops what has ended before it does anything else, and changes the
// record even when it answers with an error; so the record is stored after either.
package record

import (
	"slices"
	"time"

	"github.com/dlock/dlock/backend"
)

// Record is one lock. The zero Record is a free lock that has never been held.
// Copies share their lists: only one of them may be operated on.
type Record struct {
	Fence   uint64   `json:"fence"` // the last one given out; 0 where none is known
	Holders []Holder `json:"holders,omitempty"`
	Queue   []Waiter `json:"queue,omitempty"` // first come, first served
}

// Holder is one hold.
type Holder struct {
	Token   string        `json:"token"`
	Mode    backend.Mode  `json:"mode"`
	Owner   backend.Owner `json:"owner"`
	Fence   uint64        `json:"fence"`
	Since   Time          `json:"since"`
	TTL     time.Duration `json:"ttl,omitempty"`     // what a renewal adds
	Expires Time          `json:"expires,omitempty"` // 0: it does not end by itself
	Revoked bool          `json:"revoked,omitempty"` // not renewable: its run has to stop
	Tail    bool          `json:"tail,omitempty"`    // nobody runs under it, and nobody may end it
	Offered bool          `json:"offered,omitempty"` // its waiter has not answered yet
}

// Waiter is one place in line.
type Waiter struct {
	Token   string        `json:"token"`
	Mode    backend.Mode  `json:"mode"`
	Owner   backend.Owner `json:"owner"`
	Since   Time          `json:"since"`
	TTL     time.Duration `json:"ttl,omitempty"` // of the hold that it waits for
	Expires Time          `json:"expires"`       // unless it asks again
}

// Expire drops the holds and the places in line that have ended.
func (r *Record) Expire(now Time) {
	r.Holders = slices.DeleteFunc(r.Holders, func(h Holder) bool { return h.Expires.over(now) })
	r.Queue = slices.DeleteFunc(r.Queue, func(w Waiter) bool { return w.Expires.over(now) })
}

// RaiseFence makes every later fence larger than fence, for a store that may have
// lost its last writes and knows a number from elsewhere.
func (r *Record) RaiseFence(fence uint64) { r.Fence = max(r.Fence, fence) }

// nextFence draws a fence. Where none is known, the seed is larger than any lost one
// as long as it comes from a clock and holds are taken less often than it ticks.
func (r *Record) nextFence(seed uint64) uint64 {
	if r.Fence == 0 {
		r.Fence = max(seed, 1)
	} else {
		r.Fence++
	}
	return r.Fence
}

// holder finds the hold of token, a tail too; nil where there is none.
func (r *Record) holder(token string) *Holder {
	i := slices.IndexFunc(r.Holders, func(h Holder) bool { return h.Token == token })
	if i < 0 {
		return nil
	}
	return &r.Holders[i]
}

// place is the index of token in line, or below zero.
func (r *Record) place(token string) int {
	return slices.IndexFunc(r.Queue, func(w Waiter) bool { return w.Token == token })
}
