package bench

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"time"
)

// The edges of a chart's picture and, within it, of what its axes enclose, in pixels.
const (
	chartWidth, chartHeight = 960, 320
	chartLeft, chartRight   = 70, 920
	chartTop, chartBottom   = 15, 265
)

// colours tell apart on a screen, in print, and for those who see no red or green.
// (Okabe and Ito, Color Universal Design, 2008.)
var colours = []string{"0072b2", "d55e00", "009e73", "cc79a7", "e69f00", "56b4e9", "000000"}

// chart draws how long so many percent of all took at most: the more to the right, the
// rarer. Both axes are logarithmic: one counts nines, the other powers of ten of a millisecond.
type chart struct {
	lines     []line
	last      float64 // the end of the axis of nines, which starts at 0
	low, high float64 // the ends of the axis of time
}

func newChart(lines []line) chart {
	c := chart{lines: lines, low: math.Inf(1), high: math.Inf(-1)}
	for _, l := range lines {
		reach := nines(l.latency)
		c.last = max(c.last, reach)
		c.low, c.high = min(c.low, power(l.latency, 0)), max(c.high, power(l.latency, reach))
	}
	c.low, c.high = math.Floor(c.low), math.Floor(c.high)+1
	return c
}

// nines is how far to the right a distribution reaches: 2 for 99 %, 3 for 99.9 %.
func nines(l *Latency) float64 {
	return min(max(math.Log10(float64(l.Count())), 0.5), 5)
}

// power is the time that all took at most but for the last of so many nines.
func power(l *Latency, nines float64) float64 {
	return math.Log10(max(float64(l.At(100-100*math.Pow(10, -nines)))/1e6, 1e-3))
}

func (c chart) x(nines float64) float64 {
	return chartLeft + (chartRight-chartLeft)*nines/c.last
}

func (c chart) y(power float64) float64 {
	return chartBottom - (chartBottom-chartTop)*(power-c.low)/(c.high-c.low)
}

func (c chart) write(page *bytes.Buffer) {
	fmt.Fprintf(page, "<svg viewBox=\"0 0 %d %d\" font-size=\"13\" fill=\"none\">\n", chartWidth, chartHeight)
	c.writeTimes(page)
	c.writePercents(page)
	for i, l := range c.lines {
		c.writeLine(page, l, colours[i%len(colours)])
	}
	page.WriteString("</svg>\n")
}

func (c chart) writeTimes(page *bytes.Buffer) {
	for power := c.low; power <= c.high; power++ {
		d := time.Duration(math.Round(math.Pow(10, power) * float64(time.Millisecond)))
		y := c.y(power)
		fmt.Fprintf(page, "<path stroke=\"#ddd\" d=\"M%d %.1fH%d\"/>", chartLeft, y, chartRight)
		fmt.Fprintf(page, "<text fill=\"#555\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%s</text>\n", chartLeft-8, y+4, d)
	}
}

func (c chart) writePercents(page *bytes.Buffer) {
	tick := func(nines float64, label string) {
		x := c.x(nines)
		fmt.Fprintf(page, "<path stroke=\"#ddd\" d=\"M%.1f %dV%d\"/>", x, chartTop, chartBottom)
		fmt.Fprintf(page, "<text fill=\"#555\" text-anchor=\"middle\" x=\"%.1f\" y=\"%d\">%s %%</text>\n", x, chartBottom+18, label)
	}
	tick(0, "0")
	tick(math.Log10(2), "50")
	for n := 1; float64(n) <= c.last+0.01; n++ {
		tick(float64(n), []string{"90", "99", "99." + strings.Repeat("9", max(n-2, 0))}[min(n, 3)-1])
	}
	fmt.Fprintf(page, "<text fill=\"#555\" text-anchor=\"middle\" x=\"%d\" y=\"%d\">percent of all</text>\n", (chartLeft+chartRight)/2, chartHeight-10)
}

func (c chart) writeLine(page *bytes.Buffer, l line, colour string) {
	fmt.Fprintf(page, "<polyline stroke=\"#%s\" stroke-width=\"2\" points=\"", colour)
	for n := 0.0; n <= nines(l.latency)+1e-9; n += 0.05 {
		fmt.Fprintf(page, "%.1f,%.1f ", c.x(n), c.y(power(l.latency, n)))
	}
	page.WriteString("\"/>\n")
}
