package cmd

import (
	"strings"
)

// column is one column of a table.
type column struct {
	title string
	least int // columns of the terminal that it can be cut to; 0: it is not cut
	rank  int // where all are too wide, the lowest goes first; 0: it stays
}

// cell is one field of a table, fit to print.
type cell struct {
	text  string
	style style
}

// table is lines of cells, and lines between them that have none.
type table struct {
	columns []column
	rows    []row
}

type row struct {
	cells []cell
	note  cell // in place of cells
}

// lines lays the table out for a screen.
func (t *table) lines(sc screen) []string {
	widths := t.fit(sc.columns)
	head := row{cells: make([]cell, len(t.columns))}
	for i, c := range t.columns {
		head.cells[i] = cell{c.title, bold}
	}
	var out []string
	for _, r := range append([]row{head}, t.rows...) {
		if r.cells == nil {
			out = append(out, sc.paint(r.note.style, r.note.text))
		} else {
			out = append(out, r.line(widths, sc))
		}
	}
	return out
}

// line pads the cells to their widths; a negative one is not shown.
func (r row) line(widths []int, sc screen) string {
	var b strings.Builder
	gap := 0
	for i, c := range r.cells {
		if widths[i] < 0 {
			continue
		}
		if c.text != "" {
			text := shorten(c.text, widths[i])
			b.WriteString(strings.Repeat(" ", gap) + sc.paint(c.style, text))
			gap = -textWidth(text)
		}
		gap += widths[i] + 2
	}
	return b.String()
}

// fit finds the width of each column, so that all fit into a terminal: first go those
// that say nothing, then the long ones are cut, then the least important go.
func (t *table) fit(columns int) []int {
	natural, says := t.natural()
	if columns <= 0 {
		return natural
	}
	shown := make([]int, len(natural))
	copy(shown, natural)
	for i := range shown {
		if !says[i] && t.columns[i].rank > 0 && total(shown) > columns {
			shown[i] = -1
		}
	}
	for {
		widths := t.cut(shown, columns)
		if total(widths) <= columns {
			return widths
		}
		least := t.leastImportant(shown)
		if least < 0 {
			return widths
		}
		shown[least] = -1
	}
}

// natural is how wide each column wants to be, and whether any cell says anything.
func (t *table) natural() (widths []int, says []bool) {
	widths, says = make([]int, len(t.columns)), make([]bool, len(t.columns))
	for i, c := range t.columns {
		widths[i] = textWidth(c.title)
	}
	for _, r := range t.rows {
		for i, c := range r.cells {
			widths[i] = max(widths[i], textWidth(c.text))
			says[i] = says[i] || c.text != "" && c.text != "-"
		}
	}
	return widths, says
}

// cut takes from the widest column that can be cut, until all fit or none is left.
func (t *table) cut(shown []int, columns int) []int {
	widths := make([]int, len(shown))
	copy(widths, shown)
	for total(widths) > columns {
		widest := -1
		for i, w := range widths {
			if c := t.columns[i]; c.least > 0 && w > c.least && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

func (t *table) leastImportant(shown []int) int {
	least := -1
	for i, c := range t.columns {
		if shown[i] >= 0 && c.rank > 0 && (least < 0 || c.rank < t.columns[least].rank) {
			least = i
		}
	}
	return least
}

// total is the width of a line.
func total(widths []int) int {
	sum := -2
	for _, w := range widths {
		if w >= 0 {
			sum += w + 2
		}
	}
	return sum
}
