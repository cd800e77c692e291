package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// WriteText prints the report for people.
func (r Report) WriteText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, t := range r.tables() {
		fmt.Fprintf(w, "%s\n", t.title)
		for _, row := range append([][]string{t.head}, t.rows...) {
			for i, cell := range row {
				if i > 0 {
					fmt.Fprint(w, "\t")
				}
				fmt.Fprint(w, cell)
			}
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w)
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for _, s := range r.Services {
		fmt.Fprintf(out, "%s: %s\n", s.Service, s.Verdict())
		for _, left := range s.Left {
			fmt.Fprintf(out, "%s: left behind: %s\n", s.Service, left)
		}
	}
	if r.Interrupted {
		fmt.Fprintln(out, "interrupted: these are the results so far")
	}
	return nil
}

// Verdict says whether the service kept its word.
func (s *Result) Verdict() string {
	text := fmt.Sprintf("%d overlaps and %d fence regressions in %d holds", s.Overlaps, s.Regressions, s.Holds)
	if s.Errors > 0 {
		text += fmt.Sprintf("; %d errors, the first: %s", s.Errors, s.FirstError)
	}
	return text
}

// Broken tells whether a service let in two at once, or gave out a fence that was not larger.
func (r Report) Broken() bool {
	for _, s := range r.Services {
		if s.Overlaps+s.Regressions > 0 {
			return true
		}
	}
	return false
}

// table is one workload.
type table struct {
	title string
	head  []string
	rows  [][]string
	lines []line // to be drawn
}

// line is a distribution in a chart.
type line struct {
	label   string
	latency *Latency
}

func (r Report) tables() []table {
	tables := []table{
		{title: "take and release, each client its own lock", head: []string{"SERVICE", "CLIENTS", "PAIRS/S", "P50", "P90", "P99", "MAX"}},
		{
			title: fmt.Sprintf("hand-over, %d clients for one lock, held for %v", r.Clients, time.Duration(r.Hold)),
			head:  []string{"SERVICE", "TURNS", "P50", "P90", "P99", "MAX", "FAIRNESS", "DRAIN", "REQUESTS/TURN"},
		},
		{title: "dlock run processes, from start to end", head: []string{"SERVICE", "PROCESSES", "RUNS/S", "P50", "P90", "P99", "MAX"}},
		{title: "crash recovery, from SIGKILL of dlock to the next holder", head: []string{"SERVICE", "TTL", "KILLS", "P50", "MAX"}},
	}
	for _, s := range r.Services {
		for i, l := range s.Uncontended {
			tables[0].add(i == len(s.Uncontended)-1, s.Service, l.Pair, s.Service, fmt.Sprint(l.Clients), figure(l.Rate()))
		}
		if c := s.Contention; c != nil {
			tables[1].add(true, s.Service, c.HandOver, s.Service, fmt.Sprint(c.HandOver.Count()))
			row := &tables[1].rows[len(tables[1].rows)-1]
			*row = append(*row, fmt.Sprintf("%.3f", c.Fairness()), fmt.Sprintf("%.2f × ideal", c.Drain(time.Duration(r.Hold))), figure(c.Cost()))
		}
		if p := s.Processes; p != nil {
			tables[2].add(true, s.Service, p.Alone, s.Service, "1", figure(p.AloneRate()))
			tables[2].add(false, s.Service, p.Together, s.Service, fmt.Sprint(p.Clients), figure(p.Rate()))
		}
		if c := s.Crash; c != nil {
			tables[3].rows = append(tables[3].rows, []string{s.Service, time.Duration(c.TTL).String(), fmt.Sprint(c.Next.Count()), figures(c.Next.At(50)), figures(c.Next.Max())})
			tables[3].lines = append(tables[3].lines, line{s.Service, c.Next})
		}
	}
	var run []table
	for _, t := range tables {
		if len(t.rows) > 0 {
			run = append(run, t)
		}
	}
	return run
}

// add adds a row that ends with the usual percentiles.
func (t *table) add(draw bool, label string, l *Latency, cells ...string) {
	for _, percent := range []float64{50, 90, 99} {
		cells = append(cells, figures(l.At(percent)))
	}
	t.rows = append(t.rows, append(cells, figures(l.Max())))
	if draw && l.Count() > 0 {
		t.lines = append(t.lines, line{label, l})
	}
}

// figures is a time with three figures, in ms: one unit is easy to compare.
func figures(d time.Duration) string { return figure(float64(d)/1e6) + " ms" }

// figure is a number with three figures.
func figure(x float64) string {
	switch {
	case x == 0:
		return "-"
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}
