package torture

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest/torture/resource"
)

// visit is what the resource saw of one hold.
type visit struct {
	resource.Hold
	entered, last, left int64 // last: the last sign of life; left: 0 if it never did
}

// visits collects the log of the resource, by ID.
func visits(events []resource.Event) map[string]*visit {
	all := map[string]*visit{}
	for _, e := range events {
		at := int64(e.At)
		if e.What == resource.Enter {
			all[e.ID] = &visit{Hold: e.Hold, entered: at, last: at}
		}
		if v := all[e.ID]; v != nil {
			v.last = max(v.last, at)
			if e.What == resource.Leave {
				v.left = at
			}
		}
	}
	return all
}

// input is an operation on the lock of the model.
type input struct {
	take bool
	mode backend.Mode
	rank int // of an ordered fence, from 0; -1: not ordered
}

// state is the lock of the model: who is inside, and how many ordered fences were given.
type state struct {
	exclusive, shared, slots, rank int
}

// lockModel says what a lock allows.
var lockModel = porcupine.Model{
	Init: func() any { return state{} },
	Step: func(s, in, _ any) (bool, any) { return s.(state).step(in.(input)) },
	DescribeOperation: func(in, _ any) string {
		i := in.(input)
		if !i.take {
			return fmt.Sprintf("end of %v", i.mode)
		}
		return fmt.Sprintf("take %v, fence %d", i.mode, i.rank)
	},
}

// step is one operation: a take is possible if nobody is inside who excludes it, and
// in the order of fences.
func (s state) step(in input) (bool, state) {
	delta := 1
	if !in.take {
		delta = -1
	}
	others := s.exclusive + s.shared + s.slots
	ok := !in.take
	switch in.mode.Kind {
	case backend.Exclusive:
		ok = ok || others == 0
		s.exclusive += delta
	case backend.Shared:
		ok = ok || others == s.shared
		s.shared += delta
	case backend.Slots:
		ok = ok || others == s.slots && s.slots < in.mode.N
		s.slots += delta
	}
	if in.take && in.rank >= 0 {
		ok = ok && in.rank == s.rank
		s.rank++
	}
	return ok, s
}

// history turns what is known into operations with intervals: a take lies between the
// wish and the entry; an end between the last sign of life inside and the end of the
// lock program, or ever after if that did not end well.
func (r *run) history(events []resource.Event) []porcupine.Operation {
	all := visits(events)
	ranks := r.ranks(all)
	var ops []porcupine.Operation
	for id, v := range all {
		h := r.holds[id]
		if h == nil {
			continue
		}
		last, end := max(v.last, v.entered+1), int64(math.MaxInt64)
		if at := r.frozen[v.Token]; at != 0 {
			last = max(at, v.entered+1)
		} else if h.clean && v.left != 0 {
			last, end = max(v.left, v.entered+1), h.ended
		}
		ops = append(ops,
			porcupine.Operation{ClientId: h.contender, Input: input{true, v.Mode, ranks[id]}, Call: h.began, Return: v.entered},
			porcupine.Operation{ClientId: h.contender, Input: input{false, v.Mode, -1}, Call: last, Return: end},
		)
	}
	return ops
}

// ranks numbers the fences that must come in order.
func (r *run) ranks(all map[string]*visit) map[string]int {
	ranks, ordered := map[string]int{}, []string{}
	for id, v := range all {
		ranks[id] = -1
		if v.Mode.Kind == backend.Exclusive || !r.Service.UnorderedShared {
			ordered = append(ordered, id)
		}
	}
	slices.SortFunc(ordered, func(a, b string) int { return cmp.Compare(all[a].Fence, all[b].Fence) })
	for i, id := range ordered {
		ranks[id] = i
	}
	return ranks
}

// checkLimit bounds the check of a history.
const checkLimit = 2 * time.Minute

// check holds the history against the model; "" if it is one of a lock.
func (r *run) check(events []resource.Event) string {
	result, info := porcupine.CheckOperationsVerbose(lockModel, r.history(events), checkLimit)
	if result == porcupine.Ok {
		return ""
	}
	path := filepath.Join(os.TempDir(), fmt.Sprintf("dlock-torture-%s-%d.html", r.Service.Name, r.Seed))
	if err := porcupine.VisualizePath(lockModel, info, path); err != nil {
		path = err.Error()
	}
	return fmt.Sprintf("the history is not that of a lock (%v); see %s", result, path)
}

// timeline tells what happened around the first thing that must not happen.
func (r *run) timeline(events []resource.Event) string {
	const around = 12
	bad := slices.IndexFunc(events, func(e resource.Event) bool { return e.What == resource.Overlap || e.What == resource.Regression })
	if bad < 0 {
		return ""
	}
	var text string
	shown := slices.DeleteFunc(slices.Clone(events[:min(len(events), bad+around)]), func(e resource.Event) bool { return e.What == resource.Write })
	shown = shown[max(0, len(shown)-2*around):]
	strikes := r.tally.within(int64(shown[0].At), int64(shown[len(shown)-1].At))
	for _, e := range shown {
		for len(strikes) > 0 && strikes[0].began < int64(e.At) {
			text += fmt.Sprintf("%9.3f ms  %s, for %v\n", float64(strikes[0].began-int64(events[bad].At))/1e6,
				strikes[0].fault, time.Duration(strikes[0].done-strikes[0].began).Round(time.Millisecond))
			strikes = strikes[1:]
		}
		text += fmt.Sprintf("%9.3f ms  %-10s %v, fence %d, token %.8s, pid %d %s\n",
			float64(e.At-events[bad].At)/1e6, e.What, e.Mode, e.Fence, e.Token, e.PID, e.Text)
		if h := r.holds[e.ID]; h != nil && h.how != "" && e.What == resource.Enter {
			text += "              " + h.how + "\n"
		}
	}
	return text
}
