// Package line decides who in an ordered line of contenders holds a lock, and what
// each of the others has to watch. It knows no service and no clock: whoever can list
// the contenders in an order that all agree on can use it.
//
// First come, first served: a contender is admitted when all before it are, and are
// compatible with it. So the holders are a prefix of the line, and what one contender
// finds out stays true until somebody before it leaves.
package line

import (
	"slices"

	"github.com/dlock/dlock/backend"
)

// Contender is one place in the line.
type Contender struct {
	Mode backend.Mode

	// Absent: nobody stands behind it who would look after the line. It is another
	// program's, a detached hold, or a tail.
	Absent bool
	// Leased: it does not leave by itself, but may be evicted once Expired.
	Leased, Expired bool
}

// Decision is what the line means for one contender.
type Decision struct {
	// Admitted: it holds the lock, or may contend for it where the line stands before
	// a lock of its own. Nobody who comes later changes that.
	Admitted bool

	// Watch are the places whose end it has to learn of, in ascending order; it must look
	// again after any of them, and when one of them becomes Leased. With Changes it must
	// look again as well when the last of them is admitted: whoever is, marks its place.
	Watch   []int
	Changes bool

	// Evict are the expired ones in Watch, which it has to remove before it looks again;
	// Mind those whose lease it has to keep an eye on, since nobody else may do so.
	Evict, Mind []int

	// Conflict is the place before it that has another number of slots; -1 if none has.
	Conflict int

	// Ahead counts the waiters before it.
	Ahead int
}

// Decide tells what the line means for the contender at place i.
func Decide(line []Contender, i int) Decision {
	d := Decision{Conflict: conflict(line[:i], line[i].Mode), Ahead: max(0, i-Holders(line[:i]))}
	if d.Admitted = admitted(line, i); d.Admitted {
		return d
	}
	d.Watch, d.Changes = watch(line, i)
	d.Watch = append(d.Watch, guarded(line, d.Watch[0])...)
	slices.Sort(d.Watch)
	d.Watch = slices.Compact(d.Watch)
	d.Evict, d.Mind = leases(line, d.Watch)
	return d
}

// Holders counts the contenders that are admitted: the first so many of the line.
func Holders(line []Contender) int {
	n := 0
	for n < len(line) && admitted(line, n) {
		n++
	}
	return n
}

// admitted tells whether place i is compatible with all before it.
func admitted(line []Contender, i int) bool {
	switch m := line[i].Mode; m.Kind {
	case backend.Shared:
		return alike(line, i) == i
	case backend.Slots:
		return alike(line, i) == i && i < m.N
	}
	return i == 0
}

// alike counts the contenders right before place i that have its mode.
func alike(line []Contender, i int) int {
	n := 0
	for n < i && line[i-n-1].Mode == line[i].Mode {
		n++
	}
	return n
}

// watch tells what place i, which is not admitted, has to watch.
//
// A release wakes those who get in by it, and no crowd: an exclusive contender watches
// the place before it, a shared one the nearest that is not shared. Of those who want
// slots as many as there are slots watch the nearest other one. The first of the rest
// watches the holders once there are any; each later one the place before it, which
// does not leave when it is admitted, and therefore has to mark itself.
func watch(line []Contender, i int) (places []int, changes bool) {
	n := alike(line, i)
	switch m := line[i].Mode; {
	case m.Kind == backend.Shared, m.Kind == backend.Slots && n < m.N:
		return []int{i - n - 1}, false
	case m.Kind == backend.Slots && n == i && n == m.N:
		for p := range m.N {
			places = append(places, p)
		}
		return places, false
	case m.Kind == backend.Slots:
		return []int{i - 1}, true
	}
	return []int{i - 1}, false
}

// guarded lists what else has to be watched by who watches place p: if nobody there looks
// after the line, the leases before it, up to the nearest contender that does so.
func guarded(line []Contender, p int) (places []int) {
	for ; p >= 0 && line[p].Absent; p-- {
		if line[p].Leased {
			places = append(places, p)
		}
	}
	if p >= 0 {
		places = append(places, p)
	}
	return places
}

// leases sorts out those of the watched places that end by a clock.
func leases(line []Contender, watched []int) (evict, mind []int) {
	for _, p := range watched {
		switch c := line[p]; {
		case !c.Leased:
		case c.Expired:
			evict = append(evict, p)
		default:
			mind = append(mind, p)
		}
	}
	return evict, mind
}

// conflict finds a place that keeps mode's number of slots from being the lock's.
func conflict(before []Contender, mode backend.Mode) int {
	for p, c := range before {
		if mode.Kind == backend.Slots && c.Mode.Kind == backend.Slots && c.Mode.N != mode.N && !c.Expired {
			return p
		}
	}
	return -1
}
