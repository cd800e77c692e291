package cmd

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dlock/dlock/backend"
)

// inspectColumns are those of the table. A narrow terminal shows the highest ranks.
var inspectColumns = []column{
	{title: "NAME", least: 10},
	{title: "STATE", rank: 8},
	{title: "MODE", rank: 3},
	{title: "HOLDER", least: 10},
	{title: "PID", rank: 4},
	{title: "COMMAND", least: 10, rank: 6},
	{title: "REASON", least: 8, rank: 5},
	{title: "HELD", rank: 9},
	{title: "LEFT", rank: 7},
	{title: "FENCE", rank: 2},
	{title: "TOKEN", rank: 1},
	{title: "WAITERS", rank: 10},
}

// printTable prints one line a holder, and one for each thing that is odd.
func printTable(out io.Writer, sc screen, v view) error {
	lines := append([]string{"lock service: " + safe(describeBackend(v.limits))}, tableLines(sc, v.list)...)
	_, err := io.WriteString(out, strings.Join(lines, "\n")+"\n")
	return err
}

func tableLines(sc screen, list []backend.Status) []string {
	if len(list) == 0 {
		return []string{"no lock is held or waited for"}
	}
	t := &table{columns: inspectColumns}
	for _, s := range list {
		for _, h := range s.Holders {
			t.rows = append(t.rows, row{cells: holderCells(s, h)})
		}
		if len(s.Holders) == 0 {
			t.rows = append(t.rows, row{cells: freeCells(s)})
		}
		for _, problem := range problems(s) {
			t.rows = append(t.rows, row{note: cell{"  ! " + safe(problem), red}})
		}
	}
	return t.lines(sc)
}

func holderCells(s backend.Status, h backend.Holder) []cell {
	state := holderState(h)
	return []cell{
		{text: safe(s.Name)},
		{state, stateStyle(state)},
		{text: safe(h.Mode.String())},
		{text: safe(holderName(h.Owner))},
		{text: pidOf(h.Owner)},
		{text: safe(commandOf(h.Owner))},
		{text: safe(h.Owner.Reason)},
		{text: since(h.Held)},
		{text: left(h)},
		{text: number(h.Fence)},
		{text: orDash(safe(prefix(h.Token)))},
		waitersCell(s),
	}
}

func freeCells(s backend.Status) []cell {
	cells := make([]cell, len(inspectColumns))
	state := state(s)
	cells[0], cells[1], cells[3].text = cell{text: safe(s.Name)}, cell{state, stateStyle(state)}, "-"
	cells[9].text, cells[11] = number(s.Fence), waitersCell(s)
	return cells
}

func waitersCell(s backend.Status) cell {
	if len(s.Waiters) == 0 {
		return cell{text: "0"}
	}
	return cell{fmt.Sprint(len(s.Waiters)), yellow}
}

// holderName is who it is, and what kind of holder where that is no run.
func holderName(o backend.Owner) string {
	name := withRemarks(o, nil)
	if o.Kind == backend.Foreign {
		name += " (not dlock)"
	}
	return name
}

// pidOf is the process behind a hold.
func pidOf(o backend.Owner) string {
	if o.PID == 0 || o.Kind == backend.Detached {
		return "-"
	}
	return fmt.Sprint(o.PID)
}

func commandOf(o backend.Owner) string {
	if o.Kind == backend.Detached && o.Command == "" {
		return "(dlock acquire)"
	}
	return o.Command
}

// printCards prints all that is known of each lock, its waiters in order.
func printCards(out io.Writer, sc screen, v view) error {
	for i, s := range v.list {
		if i > 0 {
			fmt.Fprintln(out)
		}
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		fmt.Fprintf(w, "name\t%s\nlock service\t%s\nstate\t%s\n",
			safe(s.Name), safe(describeBackend(v.limits)), sc.paint(stateStyle(state(s)), state(s)))
		if s.Fence != 0 {
			fmt.Fprintf(w, "last fence\t%d\n", s.Fence)
		}
		for _, h := range s.Holders {
			printHolder(w, h)
		}
		for i, waiter := range s.Waiters {
			fmt.Fprintf(w, "waiter %d\t%s, %s, for %s\n", i+1, safe(describeOwner(waiter.Owner)), safe(waiter.Mode.String()), since(waiter.Waiting))
		}
		for _, problem := range problems(s) {
			fmt.Fprintf(w, "problem\t%s\n", sc.paint(red, safe(problem)))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func printHolder(w io.Writer, h backend.Holder) {
	fmt.Fprintf(w, "holder\t%s\n", safe(who(h.Owner)))
	for _, row := range [][2]string{{"command", h.Owner.Command}, {"reason", h.Owner.Reason}, {"state", remark(h)}} {
		if row[1] != "" {
			fmt.Fprintf(w, "  %s\t%s\n", row[0], safe(row[1]))
		}
	}
	fmt.Fprintf(w, "  mode\t%s\n  held for\t%s\n", safe(h.Mode.String()), since(h.Held))
	if h.Leased {
		fmt.Fprintf(w, "  time left\t%s\n", short(h.Left))
	}
	if h.Token != "" {
		fmt.Fprintf(w, "  fence\t%d\n  token\t%s\n", h.Fence, safe(h.Token))
	}
}

// The words for how a lock stands.
const (
	stateHeld    = "held"
	stateTail    = "tail"
	stateRevoked = "revoked"
	stateFree    = "free"
	stateUnknown = "unknown"
)

// state is one word for a lock.
func state(s backend.Status) string {
	switch {
	case s.Err != nil:
		return stateUnknown
	case len(s.Holders) == 0:
		return stateFree
	case s.Holders[0].Tail:
		return "held (tail)"
	}
	return stateHeld
}

// holderState is one word for a hold.
func holderState(h backend.Holder) string {
	switch {
	case h.Tail:
		return stateTail
	case h.Revoked:
		return stateRevoked
	}
	return stateHeld
}

func stateStyle(state string) style {
	switch state {
	case stateHeld:
		return green
	case stateFree:
		return faint
	case stateUnknown:
		return red
	}
	return yellow
}

// remark is what is special about a hold.
func remark(h backend.Holder) string {
	switch {
	case h.Tail:
		return "kept by --min-hold"
	case h.Revoked:
		return "revoked"
	}
	return ""
}

// prefix is as much of a token as tells it from the others of a lock.
func prefix(token string) string { return token[:min(len(token), 8)] }

func since(d time.Duration) string {
	if d < 0 {
		return "?"
	}
	return short(d)
}

func left(h backend.Holder) string {
	if !h.Leased {
		return "-"
	}
	return short(h.Left)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func number(n uint64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
