package cmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/bench"
)

// benchOptions is one dlock bench.
type benchOptions struct {
	backends  []string
	workloads []string
	duration  duration
	clients   count
	hold      duration
	crashTTL  duration
	json      bool
	html      string
}

const benchLong = `Put load on lock services, and look by means of their own whether two holders ever
meet and fences grow. With several --backend the services take turns, so that what
disturbs the machine disturbs them all.

  dlock bench
  dlock bench -b file:///tmp/locks -b redis://localhost --html report.html

Workloads: uncontended (each client takes and releases a lock of its own), contention
(all clients wait for one lock), processes (whole dlock run processes), crash (SIGKILL
of a dlock run: the time until the next one has the lock). The locks are named
` + bench.Prefix + `…, and removed at the end. Ctrl-C ends it with the results so far.

Requests per turn are those that the service counts, other users' included.

` + benchExitCodes

func newBenchCmd(a *app, runF func(*benchOptions) error) *cobra.Command {
	o := &benchOptions{duration: duration(10 * time.Second), clients: 8, hold: duration(5 * time.Millisecond), crashTTL: duration(2 * time.Second)}
	c := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure lock services, and check that they exclude",
		Long:  benchLong,
		Args:  usage(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if runF != nil {
				return runF(o)
			}
			return a.bench(o)
		},
	}
	flags := c.Flags()
	flags.StringArrayVarP(&o.backends, "backend", "b", nil, "lock service, as `URL`; may be given several times")
	flags.StringSliceVar(&o.workloads, "workload", bench.Workloads(), "`workloads` to run")
	flags.Var(&o.duration, "duration", "measure each workload on each service for `D`; crash takes four leases and more")
	flags.Var(&o.clients, "clients", "`N` clients at once")
	flags.Var(&o.hold, "hold", "hold the lock for `D` each time, under contention")
	flags.Var(&o.crashTTL, "ttl", "lease `D` of the run that is killed; longer where the service wants it")
	flags.BoolVar(&o.json, "json", false, "print JSON; times are in seconds")
	flags.StringVar(&o.html, "html", "", "write the report to `file`, as a page")
	completeValues(c, "workload", bench.Workloads()...)
	return c
}

func (o *benchOptions) check() error {
	for _, w := range o.workloads {
		if !slices.Contains(bench.Workloads(), w) {
			return usageError("unknown workload %q; known: %s", w, strings.Join(bench.Workloads(), " "))
		}
	}
	switch {
	case o.clients < 1 || o.clients > 1000:
		return usageError("--clients %d: it is 1 to 1000", o.clients)
	case o.duration <= 0:
		return usageError("--duration must be more than 0")
	case o.hold < 0 || time.Duration(o.hold) > time.Second:
		return usageError("--hold is at most 1s")
	case time.Duration(o.crashTTL) < time.Second:
		return usageError("--ttl is at least 1s")
	}
	return nil
}

func (a *app) bench(o *benchOptions) error {
	services, err := a.benchServices(o)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "dlock-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	page, err := createPage(o.html) // before the work, not after it
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends us at once
	report, err := bench.Run(ctx, bench.Config{
		Services: services, Workloads: o.workloads, Duration: time.Duration(o.duration), Clients: int(o.clients),
		Hold: time.Duration(o.hold), CrashTTL: time.Duration(o.crashTTL), Dir: dir, Progress: a.progress(),
	})
	if err != nil {
		return errors.Join(err, page.drop())
	}
	return errors.Join(a.printBench(o, report), page.write(report), a.benchVerdict(report))
}

// benchServices are the services that were named, or the one that is used here.
func (a *app) benchServices(o *benchOptions) ([]bench.Service, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	service := func(open func() (backend.Backend, error), env ...string) (bench.Service, error) {
		b, err := open()
		if err != nil {
			return bench.Service{}, err
		}
		defer b.Close()
		if a.place.namespaceSet {
			env = append(env, "DLOCK_NAMESPACE="+a.place.namespace)
		}
		return bench.Service{Label: b.Limits().Address, Open: open, Run: func(lock string, ttl time.Duration, command ...string) *exec.Cmd {
			c := exec.Command(self, append([]string{"run", "--quiet", "--ttl", ttl.String(), lock, "--"}, command...)...)
			c.Env = append(os.Environ(), env...) // not an argument: a URL may hold a password
			return c
		}}, nil
	}
	if len(o.backends) == 0 {
		s, err := service(a.open, a.place.environ()...)
		return []bench.Service{s}, err
	}
	var list []bench.Service
	for _, url := range o.backends {
		s, err := service(func() (backend.Backend, error) { return a.openURL(url, "--backend") }, "DLOCK_BACKEND="+url)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// progress tells on a terminal how far the work is.
func (a *app) progress() func(done, total int, what string) {
	if a.ui.quiet || !isTerminal(a.ui.out) {
		return nil
	}
	const width = 20
	return func(done, total int, what string) {
		if done == total {
			fmt.Fprint(a.ui.out, "\r\x1b[K")
			return
		}
		full := width * done / total
		fmt.Fprintf(a.ui.out, "\r\x1b[K[%s%s] %3d %%  %.50s", strings.Repeat("#", full), strings.Repeat(".", width-full), 100*done/total, safe(what))
	}
}

func (a *app) printBench(o *benchOptions, r bench.Report) error {
	if r.Interrupted && a.progress() != nil {
		fmt.Fprintln(a.ui.out)
	}
	if o.json {
		e := json.NewEncoder(a.stdout)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	return r.WriteText(a.stdout)
}

// benchVerdict is an error if a service has not kept its word, or could not be measured.
func (a *app) benchVerdict(r bench.Report) error {
	if r.Broken() {
		return &exitError{code: 1, msg: "a lock service let in two at once, or gave out a fence twice: see above"}
	}
	for _, s := range r.Services {
		if s.Errors > 0 && s.Holds <= int(r.Clients) {
			return &exitError{code: exitUnavailable, msg: s.Service + ": " + s.FirstError}
		}
	}
	return nil
}

// pageFile is the report to be written; nil if none is.
type pageFile struct{ *os.File }

func createPage(path string) (*pageFile, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, usageError("--html: %v", err)
	}
	return &pageFile{f}, nil
}

func (p *pageFile) write(r bench.Report) error {
	if p == nil {
		return nil
	}
	host, _ := os.Hostname()
	heading := fmt.Sprintf("%s, %s, %s/%s, %d processors, dlock %s", host, time.Now().Format("2 January 2006 15:04 MST"),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), version())
	return errors.Join(r.WriteHTML(io.Writer(p.File), heading), p.Close())
}

func (p *pageFile) drop() error {
	if p == nil {
		return nil
	}
	return errors.Join(p.Close(), os.Remove(p.Name()))
}
