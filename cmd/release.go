package cmd

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"

	"github.com/dlock/dlock/backend"
)

// releaseOptions is one dlock release.
type releaseOptions struct {
	tokenFlags
	force, now, yes bool
}

const releaseLong = `Give back the lock that dlock acquire took, if TOKEN still holds it.

With --force, end somebody else's hold: TOKEN may be the beginning of a token, as
dlock inspect shows it. A lock taken by acquire is free at once. A dlock run is told
to stop its command first, and frees the lock then; --now does not wait for that, so
that two commands may run at once.

` + tokenExitCodes

func newReleaseCmd(a *app, runF func(*releaseOptions) error) *cobra.Command {
	o := &releaseOptions{}
	c := &cobra.Command{
		Use:   "release [flags] NAME TOKEN",
		Short: "Give a lock back that acquire took, or revoke any",
		Long:  releaseLong,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.parse(c.Flags(), args); err != nil {
				return err
			}
			if runF != nil {
				return runF(o)
			}
			if o.force {
				return a.named(o.name, a.revoke(o))
			}
			return a.named(o.name, a.release(o))
		},
		ValidArgsFunction: a.completeNames,
	}
	o.addFlags(c.Flags())
	c.Flags().BoolVar(&o.force, "force", false, "revoke the hold of TOKEN, a prefix of a token, whoever has it")
	c.Flags().BoolVar(&o.now, "now", false, "with --force: free the lock before its command has stopped")
	c.Flags().BoolVarP(&o.yes, "yes", "y", false, "with --force: do not ask")
	return c
}

func (o *releaseOptions) parse(flags flagSet, args []string) error {
	if (o.now || o.yes) && !o.force {
		return usageError("--now and --yes belong to --force")
	}
	return o.tokenFlags.parse("release", flags, args)
}

func (a *app) release(o *releaseOptions) error {
	b, err := a.open()
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), serviceLimit)
	defer cancel()
	hold, err := b.Attach(ctx, o.name, o.token, 0)
	if err == nil {
		err = hold.Release(ctx, 0)
	}
	if err != nil {
		return a.tokenFailed(ctx, b, o.name, err)
	}
	return nil
}

// revoke ends a hold by force.
func (a *app) revoke(o *releaseOptions) error {
	if !o.yes && !isTerminal(a.stdin) {
		return usageError("--force asks on a terminal; elsewhere it wants --yes as well")
	}
	b, err := a.open()
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), serviceLimit)
	defer cancel()
	if !o.yes {
		if err := a.confirm(ctx, b, o); err != nil {
			return err
		}
	}
	h, err := b.Revoke(ctx, o.name, o.token, o.now)
	switch {
	case err != nil:
		return a.tokenFailed(ctx, b, o.name, err)
	case h.Owner.Kind == backend.Run && o.now:
		a.ui.warn(o.name, "freed while %s may still run its command", describeOwner(h.Owner))
	case h.Owner.Kind == backend.Run && !h.Tail:
		a.ui.note(o.name, "revoked: %s stops its command and then frees the lock", describeOwner(h.Owner))
	}
	return nil
}

// confirm shows whose hold it is and asks.
func (a *app) confirm(ctx context.Context, b backend.Backend, o *releaseOptions) error {
	list, err := b.Inspect(ctx, o.name)
	if err != nil {
		return err
	}
	for _, s := range list {
		for _, h := range s.Holders {
			if h.Token == "" || !strings.HasPrefix(h.Token, o.token) {
				continue
			}
			a.ui.ask(fmt.Sprintf("%s: %s; end this hold? [y/N] ", o.name, describeHolder(h)))
			answer, _ := bufio.NewReader(a.stdin).ReadString('\n')
			if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
				return &exitError{code: exitUsage, lock: o.name, msg: "nothing was changed"}
			}
			return nil
		}
	}
	return a.tokenFailed(ctx, b, o.name, backend.ErrLost)
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}
