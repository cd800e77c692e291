package bench

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"

	"github.com/wcharczuk/go-chart/v2"
	"github.com/wcharczuk/go-chart/v2/drawing"
)

const pageHead = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>dlock bench</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64em; margin: 2em auto; padding: 0 1em; color: #222; }
h1 { font-size: 1.5em; margin-bottom: 0; }
h2 { font-size: 1.15em; margin: 2em 0 0.5em; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.3em 0.6em; border-bottom: 1px solid #ddd; }
th { font-size: 0.8em; color: #555; }
th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
svg { width: 100%; height: auto; }
.legend { display: flex; flex-wrap: wrap; gap: 0 1.5em; margin: 0; overflow-wrap: anywhere; }
.legend i { display: inline-block; width: 1.5em; height: 0.25em; margin-right: 0.5em; vertical-align: middle; print-color-adjust: exact; }
.bad { color: #b00020; font-weight: bold; }
section { break-inside: avoid; }
</style>
</head>
<body>
`

// WriteHTML writes the report as one page that needs nothing else.
func (r Report) WriteHTML(out io.Writer, heading string) error {
	var page bytes.Buffer
	page.WriteString(pageHead)
	fmt.Fprintf(&page, "<h1>dlock bench</h1>\n<p>%s</p>\n", html.EscapeString(heading))
	if r.Interrupted {
		page.WriteString("<p class=\"bad\">Interrupted: these are the results until then.</p>\n")
	}
	page.WriteString("<ul>\n")
	for _, s := range r.Services {
		class := ""
		if s.Overlaps+s.Regressions > 0 {
			class = " class=\"bad\""
		}
		fmt.Fprintf(&page, "<li%s>%s: %s</li>\n", class, html.EscapeString(s.Service), html.EscapeString(s.Verdict()))
	}
	page.WriteString("</ul>\n")
	for _, t := range r.tables() {
		fmt.Fprintf(&page, "<section>\n<h2>%s</h2>\n", html.EscapeString(t.title))
		if len(t.lines) > 0 {
			svg, err := draw(t.lines)
			if err != nil {
				return err
			}
			legend(&page, t.lines)
			page.Write(svg)
		}
		t.write(&page)
		page.WriteString("</section>\n")
	}
	page.WriteString("</body>\n</html>\n")
	_, err := out.Write(page.Bytes())
	return err
}

// legend tells whose line has which colour.
func legend(page *bytes.Buffer, lines []line) {
	page.WriteString("<p class=\"legend\">")
	for i, l := range lines {
		fmt.Fprintf(page, "<span><i style=\"background:#%s\"></i>%s</span>", colours[i%len(colours)], html.EscapeString(l.label))
	}
	page.WriteString("</p>\n")
}

func (t table) write(page *bytes.Buffer) {
	row := func(tag string, cells []string) {
		page.WriteString("<tr>")
		for _, cell := range cells {
			fmt.Fprintf(page, "<%s>%s</%s>", tag, html.EscapeString(cell), tag)
		}
		page.WriteString("</tr>\n")
	}
	page.WriteString("\n<table>\n<thead>")
	row("th", t.head)
	page.WriteString("</thead>\n<tbody>\n")
	for _, cells := range t.rows {
		row("td", cells)
	}
	page.WriteString("</tbody>\n</table>\n")
}

// colours tell apart on a screen, in print, and for those who see no red or green.
// (Okabe and Ito, Color Universal Design, 2008.)
var colours = []string{"0072b2", "d55e00", "009e73", "cc79a7", "e69f00", "56b4e9", "000000"}

// draw draws how long so many percent of all took at most: the more to the right, the
// rarer. Both axes are logarithmic.
func draw(lines []line) ([]byte, error) {
	last := 0.0
	for _, l := range lines {
		last = max(last, nines(l.latency))
	}
	c := chart.Chart{
		Width: 960, Height: 320,
		Background: chart.Style{Padding: chart.Box{Top: 15, Left: 15, Right: 35, Bottom: 10}},
		XAxis:      chart.XAxis{Name: "percent of all", Range: &chart.ContinuousRange{Max: last}, Ticks: percentTicks(last)},
	}
	low, high := math.Inf(1), math.Inf(-1)
	for i, l := range lines {
		s := chart.ContinuousSeries{
			Name: l.label, YAxis: chart.YAxisSecondary, // which is the one on the left
			Style: chart.Style{StrokeColor: drawing.ColorFromHex(colours[i%len(colours)]), StrokeWidth: 2},
		}
		for x := 0.0; x <= nines(l.latency)+1e-9; x += 0.05 {
			y := math.Log10(math.Max(float64(l.latency.At(100-100*math.Pow(10, -x)))/1e6, 1e-3))
			s.XValues, s.YValues = append(s.XValues, x), append(s.YValues, y)
			low, high = min(low, y), max(high, y)
		}
		c.Series = append(c.Series, s)
	}
	low, high = math.Floor(low), math.Floor(high)+1
	c.YAxisSecondary = chart.YAxis{Ticks: timeTicks(low, high)}
	c.YAxis = chart.YAxis{Style: chart.Hidden(), Ticks: c.YAxisSecondary.Ticks} // whose ticks set the range of both
	var svg bytes.Buffer
	if err := c.Render(chart.SVG, &svg); err != nil {
		return nil, fmt.Errorf("draw a chart: %w", err)
	}
	return svg.Bytes(), nil
}

// nines is how far to the right a distribution reaches: 2 for 99 %, 3 for 99.9 %.
func nines(l *Latency) float64 {
	return min(max(math.Log10(float64(l.Count())), 0.5), 5)
}

func percentTicks(last float64) []chart.Tick {
	ticks := []chart.Tick{{Value: 0, Label: "0 %"}, {Value: math.Log10(2), Label: "50 %"}}
	for x := 1.0; x <= last+0.01; x++ {
		label := "90 %"
		if x > 1 {
			label = "99 %"
		}
		if x > 2 {
			label = "99." + strings.Repeat("9", int(x)-2) + " %"
		}
		ticks = append(ticks, chart.Tick{Value: x, Label: label})
	}
	return append(ticks, chart.Tick{Value: last})
}

func timeTicks(low, high float64) []chart.Tick {
	var ticks []chart.Tick
	for y := low; y <= high; y++ {
		d := time.Duration(math.Round(math.Pow(10, y) * float64(time.Millisecond)))
		ticks = append(ticks, chart.Tick{Value: y, Label: d.String()})
	}
	return ticks
}
