package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/dlock/dlock/backend"
)

// doctorOptions is one dlock doctor.
type doctorOptions struct {
	ttl    duration
	strict bool
	json   bool
}

const doctorLong = `Check the lock service as a careful administrator would, one line each: ok, warn or
fail, and what to do. The lock dlock-doctor is taken, renewed, handed over and released.

  dlock doctor
  dlock doctor --strict --ttl 10s && echo fit for locks

` + doctorExitCodes

func newDoctorCmd(a *app, runF func(*doctorOptions) error) *cobra.Command {
	o := &doctorOptions{ttl: duration(30 * time.Second)}
	c := &cobra.Command{
		Use:   "doctor [flags]",
		Short: "Check that the lock service is fit for locks",
		Long:  doctorLong,
		Args:  usage(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := durationFromEnv(c.Flags(), "ttl", &o.ttl, os.LookupEnv, "DLOCK_TTL"); err != nil {
				return err
			}
			if runF != nil {
				return runF(o)
			}
			return a.doctor(o)
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().Var(&o.ttl, "ttl", "lease length `D` that is in use ($DLOCK_TTL)")
	c.Flags().BoolVar(&o.strict, "strict", false, "exit with 1 if there are warnings")
	c.Flags().BoolVar(&o.json, "json", false, "print JSON")
	return c
}

func (a *app) doctor(o *doctorOptions) error {
	b, err := a.open()
	if err != nil {
		return err
	}
	defer b.Close()
	limits := b.Limits()
	if err := checkTTL(o.ttl, limits); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(untilSignal(), serviceLimit)
	defer cancel()
	d := &doctor{b: b, ttl: time.Duration(o.ttl)}
	d.examine(ctx)
	if stopped := (*signalError)(nil); errors.As(context.Cause(ctx), &stopped) {
		return &exitError{code: 128 + int(stopped.signal), die: dieOf(stopped.signal)}
	}
	if err := a.printChecks(o, limits, d.checks); err != nil {
		return err
	}
	return d.verdict(o.strict)
}

// untilSignal ends when a signal comes, with a signalError: the probe is given back then.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() { cancel(&signalError{(<-signals).(syscall.Signal)}) }()
	return ctx
}

// doctor collects what was found.
type doctor struct {
	b      backend.Backend
	ttl    time.Duration
	checks []backend.Check
}

func (d *doctor) add(checks ...backend.Check) { d.checks = append(d.checks, checks...) }

// fail notes an error, and tells whether there was one.
func (d *doctor) fail(name, hint string, err error) bool {
	if err != nil {
		d.add(backend.Found(name, backend.Fail, hint, "%v", err))
	}
	return err != nil
}

// verdict is the exit code.
func (d *doctor) verdict(strict bool) error {
	has := func(level backend.Level) bool {
		return slices.ContainsFunc(d.checks, func(c backend.Check) bool { return c.Level == level })
	}
	switch {
	case has(backend.Fail):
		return &exitError{code: exitUnavailable}
	case strict && has(backend.Warn):
		return &exitError{code: 1}
	}
	return nil
}

// probeName is the lock on which rights are tried out.
const probeName = "dlock-doctor"

// examine checks what every service must do, and then asks the service itself.
func (d *doctor) examine(ctx context.Context) {
	if !d.reach(ctx) {
		return
	}
	d.try(ctx)
	if c, ok := d.b.(backend.Checker); ok {
		d.add(c.Check(ctx, d.ttl)...)
	}
}

// reach finds out whether the service answers, and knows us.
func (d *doctor) reach(ctx context.Context) bool {
	brief, cancel := context.WithTimeout(ctx, waitForServiceNow)
	defer cancel()
	begun := time.Now()
	_, err := d.b.Inspect(brief, probeName)
	switch {
	case errors.Is(err, backend.ErrDenied):
		d.add(backend.Good("reachable", "it answers"))
		d.fail("authenticated", "give it a user that may take locks", err)
	case err != nil:
		d.fail("reachable", "start it, or name another with --backend", err)
	default:
		d.add(backend.Good("reachable", "it answered in %s, connecting included", short3(time.Since(begun))),
			backend.Good("authenticated", "it knows this user, or needs none"))
	}
	return err == nil
}

// acquireLimit is far more than it takes to get a free lock, or one that is passed on.
const acquireLimit = 10 * time.Second

// try takes, renews, hands over and releases the probe.
func (d *doctor) try(ctx context.Context) {
	const hint = "let this user take locks; the docs list the rights that it needs"
	brief, cancel := context.WithTimeout(ctx, acquireLimit)
	defer cancel()
	first, err := d.b.Acquire(brief, d.request(nil))
	if d.fail("take", hint, err) {
		return
	}
	d.add(backend.Good("take", "%s was taken", probeName))
	d.roundTrips(ctx, first)
	d.handOver(ctx, first)
}

func (d *doctor) request(waiting func(backend.Wait) error) backend.Request {
	return backend.Request{
		Name: probeName, Token: uuid.NewString(), Mode: backend.Mode{Kind: backend.Exclusive}, TTL: d.ttl,
		Owner: owner(backend.Run, []string{"dlock", "doctor"}, ""), Waiting: waiting,
	}
}

// trips is how many renewals are timed.
const trips = 5

// roundTrips renews the probe and holds the time against the lease.
func (d *doctor) roundTrips(ctx context.Context, h backend.Hold) {
	var longest time.Duration
	for range trips {
		begun := time.Now()
		_, err := h.Renew(ctx)
		longest = max(longest, time.Since(begun))
		if d.fail("renew", "without renewals every command is stopped at the end of its lease", err) {
			return
		}
	}
	d.add(backend.Good("renew", "%d times", trips))
	d.add(judgeTrip(longest, d.ttl))
}

// judgeTrip holds the time of a renewal against the lease, of which a third is left for
// one that comes late.
func judgeTrip(longest, ttl time.Duration) backend.Check {
	const check, hint, text = "round trip", "use a longer --ttl, or a service that is nearer", "a renewal takes up to %s; the TTL is %s"
	switch {
	case longest >= ttl/3:
		return backend.Found(check, backend.Fail, hint, text, short3(longest), plainDuration(ttl))
	case longest >= ttl/20:
		return backend.Found(check, backend.Warn, hint, text, short3(longest), plainDuration(ttl))
	}
	return backend.Good(check, text, short3(longest), plainDuration(ttl))
}

// handOver lets a second contender wait for the probe, which needs rights of its own,
// and releases it to it.
func (d *doctor) handOver(ctx context.Context, first backend.Hold) {
	brief, cancel := context.WithTimeoutCause(ctx, acquireLimit, errors.New("the waiter was not woken"))
	defer cancel()
	type result struct {
		hold backend.Hold
		err  error
	}
	waits, got := make(chan struct{}, 1), make(chan result, 1)
	go func() {
		h, err := d.b.Acquire(brief, d.request(func(backend.Wait) error {
			select {
			case waits <- struct{}{}:
			default:
			}
			return nil
		}))
		got <- result{h, err}
	}()
	var r result
	select {
	case <-waits:
		begun := time.Now()
		if d.fail("release", "without it every lock is kept until the end of its lease", giveBack(ctx, first)) {
			return
		}
		d.add(backend.Good("release", "%s was released", probeName))
		if r = <-got; r.err == nil {
			d.add(backend.Good("hand-over", "a waiter got the lock after %s", short3(time.Since(begun))))
		}
	case r = <-got:
		d.fail("release", "", giveBack(ctx, first))
	}
	if !d.fail("hand-over", "without it no dlock can wait for another", r.err) {
		d.fail("release", "", giveBack(ctx, r.hold))
	}
}

// giveBack gives the probe back, also when all else has been called off.
func giveBack(ctx context.Context, h backend.Hold) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpLimit)
	defer cancel()
	return h.Release(ctx, 0)
}

// short3 prints a duration of a request.
func short3(d time.Duration) string { return d.Round(10 * time.Microsecond).String() }

func (a *app) printChecks(o *doctorOptions, limits backend.Limits, checks []backend.Check) error {
	if o.json {
		return writeJSON(a.stdout, struct {
			Backend jsonBackend     `json:"backend"`
			Checks  []backend.Check `json:"checks"`
		}{jsonBackend{limits.Kind, limits.Address}, checks}, true)
	}
	sc := a.screen()
	styles := map[backend.Level]style{backend.OK: green, backend.Warn: yellow, backend.Fail: red}
	widest := 0
	for _, c := range checks {
		widest = max(widest, textWidth(c.Name))
	}
	if _, err := fmt.Fprintf(a.stdout, "lock service: %s\n", safe(describeBackend(limits))); err != nil {
		return err
	}
	for _, c := range checks {
		text := safe(c.Text)
		if c.Hint != "" {
			text += "; " + safe(c.Hint)
		}
		level := fmt.Sprintf("%-4s", c.Level)
		if _, err := io.WriteString(a.stdout, fmt.Sprintf("%s  %-*s  %s\n", sc.paint(styles[c.Level], level), widest, c.Name, text)); err != nil {
			return err
		}
	}
	return nil
}
