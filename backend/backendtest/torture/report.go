package torture

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock/dlock/backend/backendtest/torture/resource"
)

// tally counts while a run goes on.
type tally struct {
	holds, processes, stranded, overran atomic.Int64

	mu      sync.Mutex
	faults  map[string]int
	strikes []strike
	thawed  time.Duration

	emptied time.Duration // from the last fault until nobody contended any more
}

// strike is one fault that befell a run.
type strike struct {
	fault       string
	began, done int64
}

func (t *tally) fault(name string, began, done int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[name]++
	t.strikes = append(t.strikes, strike{name, began, done})
}

// within lists the faults that lasted into a time, by their beginnings.
func (t *tally) within(from, to int64) []strike {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := slices.DeleteFunc(slices.Clone(t.strikes), func(s strike) bool { return s.done < from || s.began > to })
	slices.SortFunc(list, func(a, b strike) int { return cmp.Compare(a.began, b.began) })
	return list
}

// thaw notes how long a command lived after it was frozen.
func (t *tally) thaw(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.thawed = max(t.thawed, d)
}

// Report is what a run has found.
type Report struct {
	Service     string
	Seed        uint64
	Holds       int // under which a section was entered
	Processes   int // lock programs that ran
	Faults      map[string]int
	Overlaps    int
	Excused     int           // overlaps with one that was frozen together with its guard
	Regressions int           // of fences
	Refused     int           // writes that a smaller fence kept out
	Stranded    int           // contenders that did not get the lock when all was calm
	Overran     int           // commands that lived on after they were frozen beyond their lease
	Thawed      time.Duration // the longest life of one such
	Emptied     time.Duration // from the last fault until nobody contended any more
	History     string        // why it is not that of a lock
	Timeline    string
	Leftovers   []string // on the service
	Leaks       []string // in this process
}

// report sums up a run.
func (r *run) report() Report {
	events, err := r.resource.Events()
	if err != nil {
		r.t.Error(err)
	}
	p := Report{
		Service: r.Service.Name, Seed: r.Seed, Processes: int(r.tally.processes.Load()),
		Faults: r.tally.faults, Stranded: int(r.tally.stranded.Load()),
		Overran: int(r.tally.overran.Load()), Thawed: r.tally.thawed, Emptied: r.tally.emptied,
	}
	for _, e := range events {
		switch e.What {
		case resource.Enter:
			p.Holds++
		case resource.Overlap:
			p.Overlaps++
		case resource.Excused:
			p.Excused++
		case resource.Regression:
			p.Regressions++
		case resource.Refused:
			p.Refused++
		}
	}
	p.Timeline = r.timeline(events)
	p.History = r.check(events)
	if r.Service.Leftovers != nil {
		p.Leftovers = eventuallyNone(r.Service.Leftovers)
	}
	return p
}

// Findings lists what must not be.
func (p Report) Findings() []string {
	var all []string
	for what, n := range map[string]int{
		"overlaps": p.Overlaps, "fence regressions": p.Regressions, "stranded contenders": p.Stranded,
		"commands that lived on after a freeze": p.Overran,
	} {
		if n > 0 {
			all = append(all, fmt.Sprintf("%d %s", n, what))
		}
	}
	if p.History != "" {
		all = append(all, p.History)
	}
	for _, l := range p.Leftovers {
		all = append(all, "left behind: "+l)
	}
	for _, l := range p.Leaks {
		all = append(all, "leaked: "+l)
	}
	slices.Sort(all)
	return all
}

// Row is a line of a table: see Heading.
func (p Report) Row() string {
	total := 0
	for _, n := range p.Faults {
		total += n
	}
	return fmt.Sprintf("%-18s %8d %8d %7d %5d %8d %8d %8d %8d %8d", p.Service, p.Holds, p.Processes, total, len(p.Faults),
		p.Overlaps, p.Excused, p.Regressions, p.Refused, p.Stranded)
}

// Heading is the head of the table of Rows.
const Heading = "service               holds    procs  faults kinds overlaps  excused  regress  refused stranded"

// Details lists the faults by kind.
func (p Report) Details() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(p.Faults)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, p.Faults[name]))
	}
	return fmt.Sprintf("%s, seed %d: %s; the longest life after a freeze %v; the last contender was done %v after the last fault", p.Service, p.Seed,
		strings.Join(parts, ", "), p.Thawed.Round(time.Millisecond), p.Emptied.Round(time.Millisecond))
}

// eventuallyNone waits until nothing is left, or returns what stays.
func eventuallyNone(list func() []string) []string {
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		left := list()
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// leaks is what a run must give back.
type leaks struct{ goroutines, files, children int }

func leakable() leaks {
	files, _ := os.ReadDir("/proc/self/fd")
	return leaks{goroutines(), len(files), len(children(os.Getpid()))}
}

// goroutines counts those that are not of the relays: their library leaves some behind for
// connections that ended while something was held back.
func goroutines() (n int) {
	stacks := make([]byte, 1<<20)
	for size := runtime.Stack(stacks, true); ; size = runtime.Stack(stacks, true) {
		if size < len(stacks) {
			stacks = stacks[:size]
			break
		}
		stacks = make([]byte, 2*len(stacks))
	}
	for stack := range bytes.SplitSeq(stacks, []byte("\n\n")) {
		if !bytes.Contains(stack, []byte("/toxiproxy/")) {
			n++
		}
	}
	return n
}

// leaked tells what there is more of than before, when it had time to go. Relays keep
// what they hold back, and so connections.
func (r *run) leaked(before leaks) []string {
	return eventuallyNone(func() []string {
		var all []string
		after := leakable()
		const slack = 8 // of the runtime, and idle connections of the test's own clients
		if len(r.Service.Relays) > 0 {
			after.files = 0
		}
		for what, n := range map[string]int{
			"goroutines": after.goroutines - before.goroutines - slack, "descriptors": after.files - before.files - slack,
			"children": after.children - before.children,
		} {
			if n > 0 {
				all = append(all, fmt.Sprintf("%d %s", n, what))
			}
		}
		return all
	})
}
