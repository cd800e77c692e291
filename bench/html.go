package bench

import (
	"bytes"
	"fmt"
	"html"
	"io"
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
			legend(&page, t.lines)
			newChart(t.lines).write(&page)
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
