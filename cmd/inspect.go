package cmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlock/dlock/backend"
)

// inspectOptions is one dlock inspect.
type inspectOptions struct {
	names    []string
	quiet    bool // the exit code is the answer
	json     bool
	format   string
	watch    bool
	interval duration
	output   string
}

// The formats of inspect.
const (
	formatText       = "text"
	formatJSON       = "json"
	formatPrometheus = "prometheus"
)

var inspectFormats = []string{formatText, formatJSON, formatPrometheus}

// shortestInterval is what --watch may ask of a service, and of the processor.
const shortestInterval = 100 * time.Millisecond

const inspectLong = `Show who holds what, since when and why, and who waits in which order. Without a
name, show every lock that is held or waited for, as a table; with names, all that is
known of them. What is odd is marked with "!": a waiter that is stopped, a lease that
is overdue, a record that cannot be read.

  dlock inspect                          all locks
  dlock inspect nightly                  one of them, and its line of waiters
  dlock inspect --watch                  look again every two seconds, until Ctrl-C
  dlock inspect --watch --json           the same for a program, one object a line
  dlock inspect --format prometheus --output locks.prom

On a terminal the table is fitted to its width and coloured, unless NO_COLOR is set.

With --quiet nothing is printed: the exit code is 0 if every named lock is held, and 1
if one is free.

` + inspectExitCodes

func newInspectCmd(a *app, runF func(*inspectOptions) error) *cobra.Command {
	o := &inspectOptions{interval: duration(2 * time.Second)}
	c := &cobra.Command{
		Use:   "inspect [flags] [NAME…]",
		Short: "Show who holds what, and who waits",
		Long:  inspectLong,
		RunE: func(c *cobra.Command, args []string) error {
			o.names = args
			o.quiet = a.place.quiet && c.Flags().Changed("quiet") // and not by a variable
			if err := o.check(c.Flags()); err != nil {
				return err
			}
			if runF != nil {
				return runF(o)
			}
			return a.inspect(o)
		},
		ValidArgsFunction: a.completeNames,
	}
	flags := c.Flags()
	flags.BoolVar(&o.json, "json", false, "print JSON, as --format json")
	flags.StringVar(&o.format, "format", formatText, "print `text|json|prometheus`")
	flags.BoolVar(&o.watch, "watch", false, "look again and again until interrupted")
	flags.Var(&o.interval, "interval", "with --watch: time `D` between two looks")
	flags.StringVar(&o.output, "output", "", "replace `FILE` by what would be printed, as a whole")
	completeValues(c, "format", inspectFormats...)
	return c
}

// check completes the options, and refuses what makes no sense.
func (o *inspectOptions) check(flags flagSet) error {
	for _, name := range o.names {
		if err := checkName(name); err != nil {
			return err
		}
	}
	switch {
	case o.quiet && len(o.names) == 0:
		return usageError("--quiet answers for a name; give one")
	case o.quiet && (o.watch || o.output != ""):
		return usageError("--quiet prints nothing: it excludes --watch and --output")
	case o.json && flags.Changed("format") && o.format != formatJSON:
		return usageError("--json and --format %s exclude each other", o.format)
	case !slices.Contains(inspectFormats, o.format):
		return usageError("--format %q: it is text, json or prometheus", o.format)
	case flags.Changed("interval") && !o.watch:
		return usageError("--interval belongs to --watch")
	case time.Duration(o.interval) < shortestInterval:
		return usageError("--interval %v: at least %s", &o.interval, plainDuration(shortestInterval))
	case o.watch && o.format == formatPrometheus && o.output == "":
		return usageError("--watch with --format prometheus needs --output")
	}
	if o.json {
		o.format = formatJSON
	}
	if flags.Changed("output") {
		if err := checkReplaceable(o.output); err != nil {
			return usageError("--output: %v", err)
		}
	}
	return nil
}

// view is one look at the locks.
type view struct {
	limits backend.Limits
	time   time.Time
	list   []backend.Status
	err    error // why the service did not answer; then list is empty

	namespace string // that was chosen; empty: the default
}

// look asks the service, and adds what only this host knows.
func (a *app) look(ctx context.Context, o *inspectOptions, b backend.Backend) view {
	ctx, cancel := context.WithTimeout(ctx, serviceLimit)
	defer cancel()
	list, err := b.Inspect(ctx, o.names...)
	for i := range list {
		list[i].Problems = append(slices.Clone(list[i].Problems), oddities(list[i])...)
	}
	return view{b.Limits(), time.Now(), list, err, a.place.namespace}
}

func (a *app) inspect(o *inspectOptions) error {
	b, err := a.open()
	if err != nil {
		return err
	}
	defer b.Close()
	if o.watch {
		return a.watch(o, b)
	}
	v := a.look(context.Background(), o, b)
	switch {
	case v.err != nil && o.format == formatPrometheus && o.output != "":
		return errors.Join(a.emit(o, v), v.err) // the file tells that there was no answer
	case v.err != nil:
		return v.err
	case o.quiet:
		return v.allHeld()
	case o.format == formatText && o.output == "":
		for _, name := range o.names {
			a.hintElsewhere(b, name)
		}
	}
	return errors.Join(a.emit(o, v), a.unreadable(v.list))
}

// allHeld is the error that says that one of the locks is free.
func (v view) allHeld() error {
	for _, s := range v.list {
		if len(s.Holders) == 0 {
			return &exitError{code: 1}
		}
	}
	return nil
}

// emit prints a view, or replaces the file by it.
func (a *app) emit(o *inspectOptions, v view) error {
	var text bytes.Buffer
	out := a.screen()
	if o.output != "" {
		out = plain
	}
	if err := o.print(&text, out, v); err != nil {
		return err
	}
	if o.output != "" {
		return replaceFile(o.output, text.Bytes())
	}
	_, err := a.stdout.Write(text.Bytes())
	return err
}

// print writes a view in the format that was asked for.
func (o *inspectOptions) print(w io.Writer, sc screen, v view) error {
	switch {
	case o.format == formatJSON:
		return printJSON(w, v, !o.watch)
	case o.format == formatPrometheus:
		return printPrometheus(w, v)
	case len(o.names) > 0:
		return printCards(w, sc, v)
	}
	return printTable(w, sc, v)
}

// unreadable is the error for locks whose holders could not be told.
func (a *app) unreadable(list []backend.Status) error {
	for _, s := range list {
		if s.Err != nil {
			return a.explain(s.Name, s.Err)
		}
	}
	return nil
}

// problems lists what is odd, and what could not be read.
func problems(s backend.Status) []string {
	if s.Err == nil {
		return s.Problems
	}
	return append(slices.Clone(s.Problems), s.Err.Error())
}
