package line_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/line"
)

// explorations are what is lined up, in each order: so many contenders of these kinds.
// They are written as in parse, where "d" means that it detaches when it gets in.
var explorations = []struct {
	length int
	kinds  string
}{
	{3, "x s 2 xd sd 2d xf sf"},
	{4, "x s xd sd xf"},
	{4, "x 1 3 xf 1d"},
	{5, "x 2 2d"}, // two hold slots, a first and a second waiter, and somebody before them
}

// member is a contender in one world. The zero state is that it has to look.
type member struct {
	id      int
	kind    string
	in      bool // it got in and knows it
	asleep  bool // it has looked and waits for what it watches
	watch   []int
	changes bool
	mind    []int
	expired bool
}

func (m member) is(o member) bool   { return m.id == o.id }
func (m member) mode() backend.Mode { return parse(m.kind)[0].Mode }
func (m member) foreign() bool      { return strings.Contains(m.kind, "f") }
func (m member) detached() bool     { return m.in && strings.Contains(m.kind, "d") }

// world is a line and what its members know; joined is how many of script have come.
type world struct {
	script []string
	joined int
	line   []member
}

func (w world) clone() world {
	w.line = slices.Clone(w.line)
	return w
}

func (w world) key() string { return fmt.Sprint(w.joined, w.line) }

func (w world) contenders() []line.Contender {
	var l []line.Contender
	for _, m := range w.line {
		l = append(l, line.Contender{
			Mode: m.mode(), Absent: m.foreign() || m.detached(), Leased: m.detached(), Expired: m.expired,
		})
	}
	return l
}

// wake lets those look again to whom it applies.
func (w *world) wake(concerned func(member) bool) {
	for i, m := range w.line {
		if m.asleep && concerned(m) {
			w.line[i].asleep = false
		}
	}
}

// remove takes place i out of the line.
func (w *world) remove(i int) {
	id := w.line[i].id
	w.line = slices.Delete(w.line, i, i+1)
	w.wake(func(m member) bool { return slices.Contains(m.watch, id) })
}

// look is what a living contender does when it is awake.
func (w *world) look(i int) {
	d := line.Decide(w.contenders(), i)
	ids := func(places []int) (list []int) {
		for _, p := range places {
			list = append(list, w.line[p].id)
		}
		return list
	}
	me := &w.line[i]
	switch {
	case d.Admitted:
		me.in = true
		id, leased := me.id, me.detached()
		w.wake(func(m member) bool { return (m.changes || leased) && slices.Contains(m.watch, id) })
	case len(d.Evict) > 0:
		for _, p := range slices.Backward(d.Evict) {
			w.remove(p)
		}
	default:
		me.asleep, me.watch, me.changes, me.mind = true, ids(d.Watch), d.Changes, ids(d.Mind)
	}
}

// next lists the worlds that may follow.
func (w world) next() []world {
	var all []world
	then := func(change func(*world)) {
		n := w.clone()
		change(&n)
		all = append(all, n)
	}
	if w.joined < len(w.script) {
		then(func(n *world) {
			n.line = append(n.line, member{id: n.joined, kind: n.script[n.joined]})
			n.joined++
		})
	}
	for i, m := range w.line {
		switch {
		case m.detached() && !m.expired:
			then(func(n *world) {
				n.line[i].expired = true
				n.wake(func(o member) bool { return slices.Contains(o.mind, m.id) })
			})
		case m.detached(): // only an eviction ends it
			continue
		case !m.foreign() && !m.in && !m.asleep:
			then(func(n *world) { n.look(i) })
		}
		then(func(n *world) { n.remove(i) }) // released, revoked, cancelled or dead
	}
	return all
}

// check returns what is wrong with the world.
func (w world) check() error {
	l := w.contenders()
	holders := line.Holders(l)
	for i, m := range w.line {
		if m.in && i >= holders {
			return fmt.Errorf("%d got in, and is not admitted any more", m.id)
		}
	}
	for i := range holders {
		for j := range i {
			a, b := l[i].Mode, l[j].Mode
			if a != b || a.Kind == backend.Exclusive || a.Kind == backend.Slots && holders > a.N {
				return fmt.Errorf("%v beside %v", a, b)
			}
		}
	}
	awake := func(m member) bool { return !m.foreign() && !m.in && !m.asleep }
	if slices.ContainsFunc(w.line, awake) {
		return nil // not all have done what they can
	}
	fresh := w.clone()
	fresh.line = slices.DeleteFunc(fresh.line, func(m member) bool { return m.expired })
	waits := slices.ContainsFunc(fresh.line, func(m member) bool { return m.asleep })
	for i, m := range fresh.line[:line.Holders(fresh.contenders())] {
		if m.asleep || m.foreign() && waits && slices.IndexFunc(w.line, m.is) >= holders {
			return fmt.Errorf("%d waits at place %d, and only expired leases are in its way", m.id, i)
		}
	}
	return nil
}

// TestExploreAll goes through everything that a few contenders can do, in each order:
// join, look, get in, detach, expire, leave or die at any point. Holders are always
// compatible, and nobody sleeps through its turn.
func TestExploreAll(t *testing.T) {
	for _, e := range explorations {
		worlds := 0
		for script := range scripts(strings.Fields(e.kinds), e.length) {
			worlds += explore(t, script)
		}
		t.Logf("%d of %s: %d worlds", e.length, e.kinds, worlds)
	}
}

// explore checks all worlds of one script, and counts them.
func explore(t *testing.T, script []string) int {
	seen := map[string]bool{}
	todo := []world{{script: script}}
	for len(todo) > 0 {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		k := w.key()
		if seen[k] {
			continue
		}
		seen[k] = true
		if err := w.check(); err != nil {
			t.Fatalf("%v: %+v: %v", script, w.line, err)
		}
		todo = append(todo, w.next()...)
	}
	return len(seen)
}

// scripts yields each sequence of n kinds.
func scripts(kinds []string, n int) func(func([]string) bool) {
	return func(yield func([]string) bool) {
		script := make([]string, n)
		var fill func(int) bool
		fill = func(i int) bool {
			if i == n {
				return yield(slices.Clone(script))
			}
			for _, script[i] = range kinds {
				if !fill(i + 1) {
					return false
				}
			}
			return true
		}
		fill(0)
	}
}
