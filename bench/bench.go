// Package bench puts load on lock services, side by side, and reports how long they took
// and whether they kept their word: each workload looks by its own means whether two
// holders meet and fences grow.
package bench

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
)

// Prefix begins the name of every lock that is used here, and of no other.
const Prefix = "dlock-bench-"

// The workloads.
const (
	Uncontended = "uncontended" // each client takes and releases a lock of its own
	Contention  = "contention"  // all clients wait for one lock
	Crash       = "crash"       // a dlock run is killed while somebody waits
	Processes   = "processes"   // whole dlock run processes
)

// Workloads lists them all, in the order in which they run.
func Workloads() []string { return []string{Uncontended, Contention, Processes, Crash} }

// Service is one lock service to be put under load.
type Service struct {
	Label string                          // for people; without secrets
	Open  func() (backend.Backend, error) // one more client
	// Run is a dlock run of a command under a lock of this service, not yet started.
	Run func(lock string, ttl time.Duration, command ...string) *exec.Cmd
}

// Config says what to do.
type Config struct {
	Services  []Service
	Workloads []string
	Duration  time.Duration // of a workload on one service; Crash takes as long as it takes
	Clients   int
	Hold      time.Duration // of one turn under contention
	CrashTTL  time.Duration // the lease of the one that is killed; longer where the service wants it
	Dir       string        // an empty directory, for the witness of processes
	// Progress, if set, is told what comes next, and that so many of total steps are done.
	Progress func(done, total int, what string)
}

// rounds is into how many parts each workload is divided: the services take turns, so that
// what disturbs the machine disturbs all of them.
const rounds = 4

const (
	leaseTTL   = 30 * time.Second // of in-process holds, which are far shorter
	cleanLimit = 10 * time.Second // of what is done after the end
)

// Run puts the services under load and reports. When ctx ends, so does the load; what was
// measured until then is reported, with Interrupted set. An error means that nothing could
// be measured.
func Run(ctx context.Context, c Config) (report Report, err error) {
	report = Report{Clients: c.Clients, Hold: seconds(c.Hold)}
	targets, err := open(ctx, c)
	defer func() {
		for _, t := range targets {
			t.close()
			report.Services = append(report.Services, t.result)
		}
	}()
	if ctx.Err() != nil {
		report.Interrupted = true
		return report, nil
	} else if err != nil {
		return report, err
	}
	total, done := rounds*len(c.Workloads)*len(targets), 0
	for _, workload := range c.Workloads {
		for range rounds {
			for _, t := range targets {
				if c.Progress != nil {
					c.Progress(done, total, workload+" on "+t.Label)
				}
				done++
				t.run(ctx, workload)
				if ctx.Err() != nil {
					report.Interrupted = true
					return report, nil
				}
			}
		}
	}
	if c.Progress != nil {
		c.Progress(total, total, "")
	}
	return report, nil
}

// target is a service under load.
type target struct {
	Service
	*Config
	clients []backend.Backend
	prefix  string
	names   []string // that were used
	result  *Result
}

// open connects to the services, and takes and releases a lock of each, so that one that
// does not work is found before the others are measured.
func open(ctx context.Context, c Config) ([]*target, error) {
	var targets []*target
	for _, s := range c.Services {
		t := &target{Service: s, Config: &c, prefix: Prefix + uuid.NewString()[:8] + "-", result: &Result{Service: s.Label}}
		targets = append(targets, t)
		for range c.Clients {
			b, err := s.Open()
			if err != nil {
				return targets, err
			}
			t.clients = append(t.clients, b)
		}
		for _, b := range t.clients {
			if err := t.probe(ctx, b); err != nil {
				return targets, fmt.Errorf("%s: %w", s.Label, err)
			}
		}
	}
	return targets, nil
}

func (t *target) probe(ctx context.Context, b backend.Backend) error {
	ctx, cancel := context.WithTimeout(ctx, cleanLimit)
	defer cancel()
	h, err := t.take(ctx, b, t.name("probe"), true)
	if err != nil {
		return err
	}
	return release(h)
}

// name is that of a lock of ours, which is cleaned up in the end.
func (t *target) name(what string) string {
	name := t.prefix + what
	if !slices.Contains(t.names, name) {
		t.names = append(t.names, name)
	}
	return name
}

// request asks for a lock for this process.
func (t *target) request(b backend.Backend, name string) backend.Request {
	l := b.Limits()
	return backend.Request{
		Name: name, Token: uuid.NewString(), Mode: backend.Mode{Kind: backend.Exclusive},
		TTL: min(max(leaseTTL, l.MinTTL), l.MaxTTL), Owner: backend.Owner{Kind: backend.Run, Command: "dlock bench"},
	}
}

func (t *target) take(ctx context.Context, b backend.Backend, name string, noWait bool) (backend.Hold, error) {
	r := t.request(b, name)
	r.NoWait = noWait
	return b.Acquire(ctx, r)
}

// crashTTL is the lease of the one that is killed.
func (t *target) crashTTL() time.Duration { return max(t.CrashTTL, t.clients[0].Limits().MinTTL) }

// release gives a lock back, also when the load is to end.
func release(h backend.Hold) error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
	defer cancel()
	return h.Release(ctx, 0)
}

// run does one round of a workload.
func (t *target) run(ctx context.Context, workload string) {
	d := t.Duration / rounds
	switch workload {
	case Uncontended:
		t.uncontended(ctx, d)
	case Contention:
		t.contention(ctx, d)
	case Processes:
		t.processes(ctx, d)
	case Crash:
		t.crash(ctx)
	}
}

// failed notes an error that was not the end of the load. It returns whether to go on.
func (t *target) failed(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	t.result.failed(err)
	select {
	case <-ctx.Done():
		return false
	case <-time.After(100 * time.Millisecond): // a service that is down is not to be stormed
		return true
	}
}

// close removes all traces of the load, and says what it could not remove.
func (t *target) close() {
	if len(t.clients) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanLimit)
	defer cancel()
	if f, ok := t.clients[0].(backend.Forgetter); ok { // others remember nothing
		for _, name := range t.names {
			if err := f.Forget(ctx, name); err != nil {
				t.result.Left = append(t.result.Left, fmt.Sprintf("%s: %v", name, err))
			}
		}
	}
	for _, b := range t.clients {
		_ = b.Close()
	}
}
