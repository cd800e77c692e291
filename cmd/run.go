package cmd

import (
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/runner"
)

// runOptions is one dlock run, as the command line has it.
type runOptions struct {
	lockFlags
	report    reportFlags
	name      string
	command   []string
	grace     duration
	graceSet  bool
	minHold   duration
	maxRun    duration
	reentrant bool
	onLost    string
	survivors string
}

// longestMinHold keeps a slip of the finger from closing a lock for good.
const longestMinHold = 365 * 24 * time.Hour

const runLong = `Take the lock NAME, run COMMAND, and give the lock back when it ends. Flags after
NAME belong to COMMAND. With -c, a shell ($SHELL, or /bin/sh) runs the line.

COMMAND sees DLOCK_NAME, DLOCK_TOKEN, DLOCK_FENCE, DLOCK_HELD and DLOCK_BACKEND_KIND.
COMMAND may return any exit code; --report says without doubt how the run went.

  dlock run nightly -- ./backup.sh
  dlock run -n nightly -c 'tar czf /backup/etc.tgz /etc && sync'
  dlock run -w 10m --max-run 2h --reason 'JIRA-42' deploy -- make deploy

` + runExitCodes

func newRunCmd(a *app, runF func(*runOptions) error) *cobra.Command {
	o := &runOptions{grace: duration(5 * time.Second)}
	c := &cobra.Command{
		Use:   "run [flags] NAME [--] COMMAND [ARG…]\n  dlock run [flags] NAME -c 'SHELL LINE'",
		Short: "Run a command under a lock",
		Long:  runLong,
		RunE: func(c *cobra.Command, args []string) error {
			err := o.parse(c.Flags(), args)
			if err == nil && runF != nil {
				return runF(o)
			}
			return a.reported(o, err)
		},
		ValidArgsFunction: a.completeNames,
	}
	flags := c.Flags()
	flags.SetInterspersed(false)
	o.addFlags(flags)
	o.report.addFlags(flags)
	flags.Var(&o.grace, "grace", "time `D` from SIGTERM to SIGKILL when the command must be stopped ($DLOCK_GRACE)")
	flags.Var(&o.minHold, "min-hold", "keep the lock taken until `D` after it was taken, also after a short or failed job")
	flags.Var(&o.maxRun, "max-run", "stop the command after `D`")
	flags.BoolVar(&o.reentrant, "reentrant", false, "if a dlock run above this process holds the lock, run under that hold")
	flags.StringVar(&o.onLost, "on-lost", "kill", "when the lock is lost: `kill|warn`; warn lets the command go on, which gives up the promise")
	flags.StringVar(&o.survivors, "survivors", "wait", "what becomes of processes that the command leaves in its group: `wait|kill|ignore`")
	completeValues(c, "on-lost", "kill", "warn")
	completeValues(c, "survivors", "wait", "kill", "ignore")
	hide(flags, "close", func() { flags.BoolP("close", "o", false, "") }) // flock's -o: we never pass the lock on
	return c
}

// parse completes the options from the arguments and the environment, and refuses
// what makes no sense.
func (o *runOptions) parse(flags flagSet, args []string) error {
	if err := o.report.open(flags); err != nil {
		return err
	}
	if err := o.check(flags); err != nil {
		return err
	}
	if err := errors.Join(
		durationFromEnv(flags, "ttl", &o.ttl, os.LookupEnv, "DLOCK_TTL"),
		durationFromEnv(flags, "grace", &o.grace, os.LookupEnv, "DLOCK_GRACE"),
	); err != nil {
		return err
	}
	o.graceSet = flags.Changed("grace")
	switch {
	case o.onLost != "kill" && o.onLost != "warn":
		return usageError("--on-lost %q: it is kill or warn", o.onLost)
	case !slices.Contains([]string{"wait", "kill", "ignore"}, o.survivors):
		return usageError("--survivors %q: it is wait, kill or ignore", o.survivors)
	case o.reentrant && o.minHold > 0:
		return usageError("--reentrant and --min-hold exclude each other: the outer run decides how long the lock is held")
	case time.Duration(o.minHold) > longestMinHold:
		return usageError("--min-hold %v: at most %s", &o.minHold, short(longestMinHold))
	case flags.Changed("max-run") && o.maxRun == 0:
		return usageError("--max-run 0: no command can end in no time")
	}
	if len(args) == 0 {
		return usageError("no lock name given; it is: dlock run NAME -- COMMAND")
	}
	o.name = args[0]
	if err := checkName(o.name); err != nil {
		return err
	}
	return o.parseCommand(args[1:])
}

func (o *runOptions) parseCommand(args []string) error {
	switch {
	case len(args) > 0 && args[0] == "--":
		args = args[1:]
	case len(args) > 0 && (args[0] == "-c" || args[0] == "--command"):
		if len(args) != 2 {
			return usageError("%s takes one argument, the shell line; quote it", args[0])
		}
		shell := os.Getenv("SHELL")
		if shell == "" {
			shell = "/bin/sh"
		}
		args = []string{shell, "-c", args[1]}
	}
	if len(args) == 0 {
		return usageError("no command given; it is: dlock run %s -- COMMAND", shellQuote(o.name))
	}
	o.command = args
	return nil
}

// run takes the lock and runs the command under it, and keeps account of it.
func (a *app) run(o *runOptions, c *account) error {
	subscribed := make(chan (<-chan os.Signal), 1)
	go func() { // a millisecond that the next steps need not wait for
		outliveReaders()
		subscribed <- runner.Signals()
	}()
	path, err := runner.Find(o.command[0])
	if err != nil {
		<-subscribed
		return notFound(o.command[0], err)
	}
	b, err := a.open()
	signals := <-subscribed
	if err != nil {
		return err
	}
	defer b.Close()
	limits := b.Limits()
	c.asked(limits)
	if err := checkTTL(o.ttl, limits); err != nil {
		return err
	}
	a.ui.detail(o.name, "lock service: %s", describeBackend(limits))
	if a.ui.verbose || isTerminal(a.ui.out) {
		a.hintElsewhere(b, o.name)
		a.hintPath(o.name)
	}
	req := o.request(uuid.NewString())
	job := &job{app: a, opts: o, path: path, limits: limits, signals: signals, id: uuid.NewString(), account: c}
	if o.reentrant {
		if job.hold, err = a.outer(b, o); err != nil {
			return err
		}
	}
	if job.hold == nil {
		if job.hold, err = a.take(b, req, &o.lockFlags, signals); err != nil {
			return err
		}
	}
	c.took(job.hold.Grant())
	return job.run()
}

// notFound helps who wrote a flag of ours behind the lock name.
func notFound(command string, err error) error {
	start := (*runner.StartError)(nil)
	if errors.As(err, &start) && command == "" {
		return &exitError{code: start.Code, msg: `"": command not found`}
	}
	if errors.As(err, &start) && strings.HasPrefix(command, "-") {
		return &exitError{code: start.Code, msg: err.Error(), hint: "flags of dlock stand before the lock name: dlock run [flags] NAME -- COMMAND"}
	}
	return err
}

func (o *runOptions) request(token string) backend.Request {
	return backend.Request{
		Name: o.name, Token: token, Mode: o.mode(),
		TTL: time.Duration(o.ttl), Grace: time.Duration(o.grace),
		NoWait: o.noWait, TailIsBusy: !o.waitSet,
		Owner: owner(backend.Run, o.command, o.reason),
	}
}

// hintPath tells users of flock(1) that a lock is a name.
func (a *app) hintPath(name string) {
	if !strings.HasPrefix(name, "/") {
		return
	}
	if _, err := os.Stat(name); err == nil {
		a.ui.hint("%s is taken as a name and not as that file; what flock(1) calls /dir/job.lock is the lock job of --backend file:///dir", name)
	}
}

// hintElsewhere tells of a lock of the same name that does not exclude this one.
func (a *app) hintElsewhere(b backend.Backend, name string) {
	type elsewhere interface{ Elsewhere(name string) string }
	if e, ok := b.(elsewhere); ok {
		if path := e.Elsewhere(name); path != "" {
			a.ui.hint("another user's lock of this name, %s, does not exclude this one; share a directory with --backend file:///dir", path)
		}
	}
}
