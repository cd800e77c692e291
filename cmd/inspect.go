package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlock/dlock/backend"
)

// inspectOptions is one dlock inspect.
type inspectOptions struct {
	names []string
	quiet bool // the exit code is the answer
	json  bool
}

const inspectLong = `Show who holds what, since when and why, and who waits in which order. Without a
name, show every lock that is held or waited for.

With --quiet nothing is printed: the exit code is 0 if every named lock is held, and 1
if one is free.

` + inspectExitCodes

func newInspectCmd(a *app, runF func(*inspectOptions) error) *cobra.Command {
	o := &inspectOptions{}
	c := &cobra.Command{
		Use:   "inspect [flags] [NAME…]",
		Short: "Show who holds what, and who waits",
		Long:  inspectLong,
		RunE: func(c *cobra.Command, args []string) error {
			o.names = args
			for _, name := range args {
				if err := checkName(name); err != nil {
					return err
				}
			}
			o.quiet = a.place.quiet && c.Flags().Changed("quiet") // and not by a variable
			if o.quiet && len(args) == 0 {
				return usageError("--quiet answers for a name; give one")
			}
			if runF != nil {
				return runF(o)
			}
			return a.inspect(o)
		},
		ValidArgsFunction: a.completeNames,
	}
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return c
}

func (a *app) inspect(o *inspectOptions) error {
	b, err := a.open()
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), serviceLimit)
	defer cancel()
	list, err := b.Inspect(ctx, o.names...)
	if err != nil {
		return err
	}
	switch {
	case o.quiet:
		for _, s := range list {
			if len(s.Holders) == 0 {
				return &exitError{code: 1}
			}
		}
		return nil
	case o.json:
		return errors.Join(printJSON(a.stdout, b.Limits(), list), a.unreadable(list))
	}
	for _, name := range o.names {
		a.hintElsewhere(b, name)
	}
	if len(o.names) > 0 {
		err = printCards(a.stdout, b.Limits(), list)
	} else {
		err = printTable(a.stdout, b.Limits(), list)
	}
	return errors.Join(err, a.unreadable(list))
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

// printTable prints one line a holder.
func printTable(out io.Writer, limits backend.Limits, list []backend.Status) error {
	fmt.Fprintf(out, "lock service: %s\n", safe(describeBackend(limits)))
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "no lock is held or waited for")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tMODE\tHOLDER\tHELD\tLEFT\tFENCE\tTOKEN\tWAITERS")
	for _, s := range list {
		for _, h := range s.Holders {
			fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%s\t%s\t%d\n",
				safe(s.Name), h.Mode, safe(holderCell(h)), since(h.Held), left(h), number(h.Fence), safe(prefix(h.Token)), len(s.Waiters))
		}
		if len(s.Holders) == 0 {
			fmt.Fprintf(w, "%s\t\t%s\t\t\t%s\t\t%d\n", safe(s.Name), state(s), number(s.Fence), len(s.Waiters))
		}
		for _, problem := range problems(s) {
			fmt.Fprintf(w, "%s\t\t%s\t\t\t\t\t\n", safe(s.Name), safe(problem))
		}
	}
	return w.Flush()
}

// printCards prints all that is known of each lock, its waiters in order.
func printCards(out io.Writer, limits backend.Limits, list []backend.Status) error {
	for i, s := range list {
		if i > 0 {
			fmt.Fprintln(out)
		}
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		fmt.Fprintf(w, "name\t%s\nlock service\t%s\nstate\t%s\n", safe(s.Name), safe(describeBackend(limits)), state(s))
		if s.Fence != 0 {
			fmt.Fprintf(w, "last fence\t%d\n", s.Fence)
		}
		for _, h := range s.Holders {
			fmt.Fprintf(w, "holder\t%s\n", safe(who(h.Owner)))
			for _, row := range [][2]string{{"command", h.Owner.Command}, {"reason", h.Owner.Reason}, {"state", remark(h)}} {
				if row[1] != "" {
					fmt.Fprintf(w, "  %s\t%s\n", row[0], safe(row[1]))
				}
			}
			fmt.Fprintf(w, "  mode\t%v\n  held for\t%s\n", h.Mode, since(h.Held))
			if h.Leased {
				fmt.Fprintf(w, "  time left\t%s\n", short(h.Left))
			}
			if h.Token != "" {
				fmt.Fprintf(w, "  fence\t%d\n  token\t%s\n", h.Fence, safe(h.Token))
			}
		}
		for i, waiter := range s.Waiters {
			fmt.Fprintf(w, "waiter %d\t%s, %v, for %s\n", i+1, safe(describeOwner(waiter.Owner)), waiter.Mode, since(waiter.Waiting))
		}
		for _, problem := range problems(s) {
			fmt.Fprintf(w, "problem\t%s\n", safe(problem))
		}
		if err := w.Flush(); err != nil {
			return err
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

// state is one word for a lock.
func state(s backend.Status) string {
	switch {
	case s.Err != nil:
		return "unknown"
	case len(s.Holders) == 0:
		return "free"
	case s.Holders[0].Tail:
		return "held (tail)"
	}
	return "held"
}

func holderCell(h backend.Holder) string {
	text := describeOwner(h.Owner)
	if r := remark(h); r != "" {
		text += ", " + r
	}
	return text
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

func number(n uint64) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
