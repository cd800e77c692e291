package main

import (
	"cmp"
	"embed"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// sections has, for some pages, what their command's help does not say: NAME.roff.
//
//go:embed *.roff
var sections embed.FS

// pageName is dlock-run for the command dlock run.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// page is the manual page of a command, in the man macros that groff and mandoc have in
// common. Its date is left empty: it would change without a change.
func page(c *cobra.Command) []byte {
	var b strings.Builder
	name := pageName(c)
	b.WriteString(".\\\" Made by go generate; do not edit.\n")
	fmt.Fprintf(&b, ".TH %s 1 \"\" dlock \"dlock manual\"\n", strings.ToUpper(escape(name)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(name), escape(lowerFirst(c.Short)))
	section(&b, "SYNOPSIS", ".nf\n"+synopsis(c)+".fi\n")
	text := parse(cmp.Or(c.Long, c.Short+"."))
	section(&b, "DESCRIPTION", text.description)
	section(&b, "COMMANDS", commands(c))
	section(&b, "OPTIONS", options(c.LocalFlags()))
	section(&b, "COMMON OPTIONS", options(c.InheritedFlags()))
	section(&b, "EXIT STATUS", text.exitStatus)
	if extra, err := sections.ReadFile(name + ".roff"); err == nil {
		b.Write(extra)
	}
	section(&b, "EXAMPLES", text.examples)
	section(&b, "SEE ALSO", seeAlso(c))
	return []byte(b.String())
}

func section(b *strings.Builder, title, text string) {
	if text != "" {
		b.WriteString(".SH " + title + "\n" + text)
	}
}

func commands(root *cobra.Command) string {
	var b strings.Builder
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() {
			fmt.Fprintf(&b, ".TP\n.BR %s (1)\n%s\n", escape(pageName(c)), escape(c.Short))
		}
	}
	return b.String()
}

// synopsis has a line for each way to call the command.
func synopsis(c *cobra.Command) string {
	if !c.HasParent() {
		return "\\fBdlock\\fR \\fICOMMAND\\fR [\\fIflags\\fR] [\\fIargument\\fR ...]\n\\fBdlock \\-\\-version\\fR\n"
	}
	var b strings.Builder
	for line := range strings.Lines(c.UseLine()) {
		line = strings.TrimSpace(line)
		if !strings.Contains(line, "[flags]") {
			line += " [flags]"
		}
		line = escape(strings.ReplaceAll(line, "…", " …"))
		line = regexp.MustCompile(`[A-Z]+( [A-Z]+)*|\bflags\b`).ReplaceAllString(line, `\fI$0\fR`)
		line = regexp.MustCompile(`^dlock [a-z]+( [a-z|]+\|[a-z]+)?|\\-c`).ReplaceAllString(line, `\fB$0\fR`)
		b.WriteString(line + "\n")
	}
	return b.String()
}

// prose is a help text in the parts that a manual page has.
type prose struct{ description, examples, exitStatus string }

// parse takes a help text apart: paragraphs that are indented are examples, and what
// stands below "Exit codes:" is a table.
func parse(long string) (p prose) {
	text, table, _ := strings.Cut(long, "Exit codes:\n")
	p.exitStatus = exitStatus(table)
	for _, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if example, ok := strings.CutPrefix(paragraph, "  "); ok {
			p.examples += ".PP\n.RS 4\n.nf\n" + escape(strings.ReplaceAll(example, "\n  ", "\n")) + "\n.fi\n.RE\n"
		} else {
			p.description += ".PP\n" + escape(paragraph) + "\n"
		}
	}
	// The first paragraph follows its heading.
	p.description, p.examples = strings.TrimPrefix(p.description, ".PP\n"), strings.TrimPrefix(p.examples, ".PP\n")
	return p
}

var exitCode = regexp.MustCompile(`^  (\d+) +(.*)$`)

func exitStatus(table string) string {
	var b strings.Builder
	for line := range strings.Lines(table) {
		line = strings.TrimSuffix(line, "\n")
		if m := exitCode.FindStringSubmatch(line); m != nil {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", m[1], escape(m[2]))
		} else {
			fmt.Fprintf(&b, "%s; or, from dlock itself:\n", escape(upperFirst(strings.TrimSpace(line))))
		}
	}
	return b.String()
}

// options lists flags.
func options(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			b.WriteString(option(f))
		}
	})
	return b.String()
}

func option(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	names := `\fB\-\-` + escape(f.Name) + `\fR`
	if value != "" {
		names += `=\fI` + escape(value) + `\fR`
	}
	if f.Shorthand != "" {
		names = `\fB\-` + f.Shorthand + `\fR, ` + names
	}
	switch f.DefValue {
	case "", "0", "[]", "false":
	default:
		usage += " (default " + strings.Trim(f.DefValue, "[]") + ")"
	}
	return ".TP\n" + names + "\n" + escape(upperFirst(usage)) + ".\n"
}

func seeAlso(c *cobra.Command) string {
	var b strings.Builder
	for _, other := range append([]*cobra.Command{c.Root()}, c.Root().Commands()...) {
		if other != c && (other.IsAvailableCommand() || other == c.Root()) {
			fmt.Fprintf(&b, ".BR %s (1),\n", escape(pageName(other)))
		}
	}
	return b.String() + ".BR flock (1),\n.BR timeout (1),\n.BR crontab (5)\n"
}

// escape writes text so that roff prints it as it is.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `…`, `...`, `'`, `\(aq`, `"`, `\(dq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
