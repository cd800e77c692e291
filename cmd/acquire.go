package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/runner"
)

// acquireOptions is one dlock acquire.
type acquireOptions struct {
	lockFlags
	name string
	json bool
}

const acquireLong = `Take the lock NAME and print its token. No process stays behind: the lock ends
after --ttl, unless it is renewed or released before. Nothing stops your script when
its time is over; only dlock run promises that. On the file backend such a lock
excludes dlock, and not flock(1).

  token=$(dlock acquire --ttl 10m deploy) || exit
  …
  dlock renew deploy "$token"
  …
  dlock release deploy "$token"

` + acquireExitCodes

func newAcquireCmd(a *app, runF func(*acquireOptions) error) *cobra.Command {
	o := &acquireOptions{}
	c := &cobra.Command{
		Use:   "acquire [flags] NAME",
		Short: "Take a lock and print its token",
		Long:  acquireLong,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.parse(c.Flags(), args); err != nil {
				return err
			}
			if runF != nil {
				return runF(o)
			}
			return a.named(o.name, a.acquire(o))
		},
		ValidArgsFunction: a.completeNames,
	}
	o.addFlags(c.Flags())
	c.Flags().BoolVar(&o.json, "json", false, "print name, token, fence and expires_in (seconds) as JSON")
	return c
}

func (o *acquireOptions) parse(flags flagSet, args []string) error {
	if err := o.check(flags); err != nil {
		return err
	}
	if err := durationFromEnv(flags, "ttl", &o.ttl, os.LookupEnv, "DLOCK_TTL"); err != nil {
		return err
	}
	if len(args) != 1 {
		return usageError("give one lock name; it is: dlock acquire NAME")
	}
	o.name = args[0]
	return checkName(o.name)
}

func (a *app) acquire(o *acquireOptions) error {
	signals := runner.Signals()
	outliveReaders()
	b, err := a.open()
	if err != nil {
		return err
	}
	defer b.Close()
	limits := b.Limits()
	if limits.NoDetached != "" {
		return usageError("acquire is not possible here: %s", limits.NoDetached)
	}
	if err := checkTTL(o.ttl, limits); err != nil {
		return err
	}
	a.ui.detail(o.name, "lock service: %s", describeBackend(limits))
	if a.ui.verbose || isTerminal(a.ui.out) {
		a.hintElsewhere(b, o.name)
	}
	if isNull(a.stdout) {
		a.ui.warn(o.name, "standard output is /dev/null: nobody will know the token, and the lock stays for --ttl")
	}
	hold, err := a.take(b, backend.Request{
		Name: o.name, Token: uuid.NewString(), Mode: o.mode(), TTL: time.Duration(o.ttl),
		NoWait: o.noWait, TailIsBusy: !o.waitSet, Detached: true,
		Owner: owner(backend.Detached, nil, o.reason),
	}, &o.lockFlags, signals)
	if err != nil {
		return err
	}
	if err := a.printGrant(o, hold.Grant()); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cleanUpLimit)
		defer cancel()
		err = errors.Join(err, hold.Release(ctx, 0))
		return &exitError{code: exitUnavailable, lock: o.name, msg: fmt.Sprintf("the token could not be printed, so the lock was released: %v", err)}
	}
	return nil
}

// isNull tells whether a stream is the null device, as it is too when our parent has
// closed it.
func isNull(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	null, err2 := os.Stat(os.DevNull)
	return err == nil && err2 == nil && os.SameFile(info, null)
}

func (a *app) printGrant(o *acquireOptions, g backend.Grant) error {
	if !o.json {
		_, err := fmt.Fprintln(a.stdout, g.Token)
		return err
	}
	return json.NewEncoder(a.stdout).Encode(struct {
		Name      string  `json:"name"`
		Token     string  `json:"token"`
		Fence     uint64  `json:"fence"`
		ExpiresIn float64 `json:"expires_in"`
	}{o.name, g.Token, g.Fence, g.Lease.Sent.Add(g.Lease.TTL).Sub(boottime.Now()).Seconds()})
}
