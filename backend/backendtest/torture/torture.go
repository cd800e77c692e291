// Package torture shows that a lock excludes: contenders in processes of their own and
// in this one take one lock in all modes, while faults befall them, the network and
// the server. The critical sections see by kernel locks of their own whether they
// overlap (package resource), the history is checked against a model of a lock, and
// what is left behind at the end is looked for. Broken lock programs show that the
// harness finds faults (package broken).
package torture

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/backend/backendtest/torture/resource"
)

// lockName is the one lock that all contend for.
const lockName = "t"

// slotCount is the N of its slots mode.
const slotCount = 3

// Service is a lock service with which nothing was locked before, as the harness sees it.
type Service struct {
	Name   string
	URL    string                           // straight at it
	Open   func(url string) backend.Backend // a client
	Leases bool                             // a hold of a run ends by itself
	// Ways are URLs of the same service for contenders, and Relays what they lead
	// through, if anything.
	Ways   []string
	Relays []*relay.Relay
	Server Server // nil if no one process is the service
	// Forgetful tells that Restart loses all data. It is done only when all leases have ended.
	Forgetful func()
	// Leftovers lists what is there that ought not to be, once everybody has gone.
	Leftovers func() []string
	// UnorderedShared tells that only the fences of exclusive holds come in order.
	UnorderedShared bool
}

// Server is the process of a service.
type Server interface {
	Stop()                  // SIGSTOP
	Cont()                  // SIGCONT
	Kill()                  // SIGKILL
	Restart(args ...string) // with its data
}

// Config is one run of the harness.
type Config struct {
	Service   Service
	Seed      uint64
	Duration  time.Duration
	Processes int // contenders that are processes
	Clients   int // contenders within this process; 0: none
	// ExclusiveClients tells that Clients are to take the lock in no other mode.
	ExclusiveClients bool
	// Locker is the command line that runs what follows it under the lock, with some
	// choices by chance; a contender adds the section.
	Locker func(way string, choice *Choice) []string
	Faults []Fault
	// Until ends a run before Duration, at the first fault that is found.
	Until bool
	// Patience is how long the last ones may take to get the lock, and to be done.
	Patience time.Duration
}

// Choice is how a contender that is a process takes the lock this time.
type Choice struct {
	Random  *rand.Rand
	Mode    backend.Mode
	Work    time.Duration
	Flavour string // of the section
}

// run is a harness at work.
type run struct {
	Config
	t        testing.TB
	dir      string
	section  string // the program
	resource resource.Dir
	tally    tally
	stop     chan struct{} // closed when no contender is to begin again

	mu     sync.Mutex
	live   map[*process]bool
	holds  map[string]*hold // by ID
	frozen map[string]int64 // by token: since when
	relays map[*relay.Relay]*sync.Mutex
	server sync.Mutex   // held while a fault befalls the server
	gate   sync.RWMutex // held by contenders as long as they contend, taken by who needs nobody there
}

// hold is what is known of one attempt to take the lock.
type hold struct {
	contender int
	began     int64  // when the lock was asked for; like all times here, boottime ns
	ended     int64  // when the program ended, or the release returned; 0: never known
	clean     bool   // it ended well, so the hold was over by then
	how       string // for people
}

// Run runs the harness and returns what it found.
func Run(t testing.TB, c Config) Report {
	t.Helper()
	dir := t.TempDir()
	r := &run{
		Config: c, t: t, dir: dir, section: Build(t, "section"), stop: make(chan struct{}),
		live: map[*process]bool{}, holds: map[string]*hold{}, frozen: map[string]int64{},
		relays: map[*relay.Relay]*sync.Mutex{},
	}
	r.tally.faults = map[string]int{}
	for _, relay := range c.Service.Relays {
		r.relays[relay] = new(sync.Mutex)
	}
	if err := os.Mkdir(filepath.Join(dir, "resource"), 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.resource, err = resource.New(filepath.Join(dir, "resource")); err != nil {
		t.Fatal(err)
	}
	before := leakable()
	r.contend()
	report := r.report()
	report.Leaks = r.leaked(before)
	return report
}

// contend lets the contenders loose, and the faults, until the time is over; then waits
// until everybody has had his turn.
func (r *run) contend() {
	var contenders, faults sync.WaitGroup
	for i := range r.Processes {
		contenders.Go(func() { r.processes(i) })
	}
	for i := range r.Clients {
		contenders.Go(func() { r.client(r.Processes + i) })
	}
	calm := make(chan struct{})
	for i, f := range r.Faults {
		faults.Go(func() { r.inject(f, r.random(1000+i), calm) })
	}
	r.sleep(r.Duration)
	close(r.stop)
	close(calm)
	faults.Wait()
	calmed := time.Now()
	done := make(chan struct{})
	go func() {
		contenders.Wait()
		close(done)
	}()
	if r.Until && r.findings() > 0 {
		r.endAll(done)
	}
	select {
	case <-done:
	case <-time.After(r.Patience):
		r.strand()
		<-done
	}
	r.tally.emptied = time.Since(calmed)
}

// endAll ends whatever runs, or begins to run, until all contenders are done.
func (r *run) endAll(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(100 * time.Millisecond):
		}
		for _, p := range r.alive() {
			p.killAll()
		}
	}
}

// strand counts who still waits, and ends it.
func (r *run) strand() {
	for _, p := range r.alive() {
		r.tally.stranded.Add(1)
		p.kill()
	}
}

// sleep lets time pass, less if that is all that is wanted to be known.
func (r *run) sleep(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if r.Until && r.findings() > 0 {
			return
		}
	}
}

// findings counts what the resource has seen that must not be.
func (r *run) findings() int {
	events, _ := r.resource.Events()
	n := int(r.tally.overran.Load())
	for _, e := range events {
		if e.What == resource.Overlap || e.What == resource.Regression {
			n++
		}
	}
	return n
}

// random is the chance of one part of the run: the same for the same seed.
func (r *run) random(part int) *rand.Rand { return rand.New(rand.NewPCG(r.Seed, uint64(part))) }

func (r *run) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// begin notes that a hold is asked for.
func (r *run) begin(id string, contender int) *hold {
	h := &hold{contender: contender, began: now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds[id] = h
	return h
}

// finish notes how it ended.
func (r *run) finish(h *hold, clean bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.ended, h.clean = now(), clean
}

// between is a duration by chance.
func between(random *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(random.Int64N(int64(to-from)))
}
