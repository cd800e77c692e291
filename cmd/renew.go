package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlock/dlock/backend"
)

// serviceLimit bounds what asks the lock service once.
const serviceLimit = 60 * time.Second

// renewOptions is one dlock renew.
type renewOptions struct {
	tokenFlags
	ttl    duration
	ttlSet bool
	json   bool
}

const renewLong = `Extend the lock that dlock acquire took, so that it ends --ttl from now, but never
earlier than before. A --ttl is the lock's new length; without it the lock keeps the one it has.

` + tokenExitCodes

func newRenewCmd(a *app, runF func(*renewOptions) error) *cobra.Command {
	o := &renewOptions{}
	c := &cobra.Command{
		Use:   "renew [flags] NAME TOKEN",
		Short: "Extend a lock that acquire took",
		Long:  renewLong,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.parse(c.Flags(), args); err != nil {
				return err
			}
			if runF != nil {
				return runF(o)
			}
			return a.named(o.name, a.renew(o))
		},
		ValidArgsFunction: a.completeNames,
	}
	o.addFlags(c.Flags())
	c.Flags().Var(&o.ttl, "ttl", "new length `D` of the lease; default: the one it has")
	c.Flags().BoolVar(&o.json, "json", false, "print name and expires_in (seconds) as JSON")
	return c
}

func (o *renewOptions) parse(flags flagSet, args []string) error {
	o.ttlSet = flags.Changed("ttl")
	return o.tokenFlags.parse("renew", flags, args)
}

func (a *app) renew(o *renewOptions) error {
	b, err := a.open()
	if err != nil {
		return err
	}
	defer b.Close()
	ttl := time.Duration(0)
	if o.ttlSet {
		if err := checkTTL(o.ttl, b.Limits()); err != nil {
			return err
		}
		ttl = time.Duration(o.ttl)
	}
	ctx, cancel := context.WithTimeout(context.Background(), serviceLimit)
	defer cancel()
	hold, err := b.Attach(ctx, o.name, o.token, ttl)
	var lease backend.Lease
	if err == nil {
		lease, err = hold.Renew(ctx)
	}
	if err != nil {
		return a.tokenFailed(ctx, b, o.name, err)
	}
	if o.json {
		return json.NewEncoder(a.stdout).Encode(struct {
			Name      string  `json:"name"`
			ExpiresIn float64 `json:"expires_in"`
		}{o.name, lease.TTL.Seconds()})
	}
	return nil
}

// tokenFailed says why a token could not be used, and who has the lock now.
func (a *app) tokenFailed(ctx context.Context, b backend.Backend, name string, err error) error {
	e := a.explain(name, err)
	e.lock = name
	if !errors.Is(err, backend.ErrLost) {
		return e
	}
	e.msg = "this token does not hold the lock (any more); nobody does"
	if list, err := b.Inspect(ctx, name); err == nil && len(list) == 1 && len(list[0].Holders) > 0 {
		e.msg = "this token does not hold the lock (any more); it is " + describeHolders(list[0].Holders, 0)
	}
	return e
}
