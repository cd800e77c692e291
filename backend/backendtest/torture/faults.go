package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/internal/proc"
)

// Fault is something that befalls a run now and then.
type Fault struct {
	Name  string
	Every time.Duration               // on average
	do    func(*run, *rand.Rand) bool // reports whether it found a victim
}

// longest is more than the TTL of any process of the harness.
const (
	shortTTL = time.Second
	longTTL  = 2 * time.Second
	longest  = longTTL * 3 / 2
)

// ProcessFaults befall the processes of contenders.
func ProcessFaults() []Fault {
	return []Fault{
		{"kill dlock", 4 * time.Second, onDlock(signal(syscall.SIGKILL))},
		{"stop dlock", 5 * time.Second, onDlock(pause)},
		{"kill guard", 2 * time.Second, onGuard(signal(syscall.SIGKILL))},
		{"stop guard", 5 * time.Second, onGuard(pause)},
		{"kill command", 3 * time.Second, onCommand(signal(syscall.SIGKILL))},
		{"stop command", 7 * time.Second, onCommand(pause)},
		{"freeze all", 15 * time.Second, freezeAll},
		{"interrupt", 2 * time.Second, onDlock(signal(syscall.SIGINT))},
		{"terminate", 3 * time.Second, onDlock(signal(syscall.SIGTERM))},
		{"revoke", 2 * time.Second, revoke},
	}
}

// NetworkFaults befall the ways to the service.
func NetworkFaults() []Fault {
	return []Fault{
		{"cut", 2 * time.Second, onRelay(func(l *relay.Relay, _ *rand.Rand) { l.Cut() })},
		{"hole", 10 * time.Second, onRelay(whileFor(shortTTL/4, longest, (*relay.Relay).Hole))},
		{"refused", 8 * time.Second, onRelay(whileFor(shortTTL/4, longTTL, (*relay.Relay).Refuse))},
		{"delay", 8 * time.Second, onRelay(whileFor(shortTTL, longest, func(l *relay.Relay) { l.Delay(150 * time.Millisecond) }))},
		{"slow", 9 * time.Second, onRelay(whileFor(shortTTL, longest, func(l *relay.Relay) { l.Slow(2) }))},
		{"late requests", 10 * time.Second, onRelay(whileFor(shortTTL/2, longest, (*relay.Relay).HoldRequests))},
		{"late replies", 10 * time.Second, onRelay(whileFor(shortTTL/2, longest, (*relay.Relay).HoldReplies))},
	}
}

// ServerFaults befall the service itself.
func ServerFaults() []Fault {
	return []Fault{
		{"stop server", 15 * time.Second, func(r *run, random *rand.Rand) bool {
			r.server.Lock()
			defer r.server.Unlock()
			r.Service.Server.Stop()
			time.Sleep(between(random, shortTTL/4, longest))
			r.Service.Server.Cont()
			return true
		}},
		{"restart server", 15 * time.Second, func(r *run, random *rand.Rand) bool {
			r.server.Lock()
			defer r.server.Unlock()
			r.Service.Server.Kill()
			time.Sleep(between(random, 0, shortTTL))
			r.Service.Server.Restart()
			return true
		}},
	}
}

// ForgetFault lets the service lose its data. Then nobody may hold a lease.
func ForgetFault() Fault {
	return Fault{"forget all", 20 * time.Second, func(r *run, _ *rand.Rand) bool {
		r.gate.Lock()
		defer r.gate.Unlock()
		r.Service.Forgetful()
		return true
	}}
}

// ClockFaults are steps of the service's clock, which set puts that far from the true
// time. A step forward ends leases before their time, so nobody may hold one then. One
// back makes the lease of one that has died last that much longer.
func ClockFaults(set func(time.Duration)) []Fault {
	var mu sync.Mutex
	var ahead time.Duration
	step := func(by time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		ahead += by
		set(ahead)
	}
	return []Fault{
		{"clock forward", 20 * time.Second, func(r *run, random *rand.Rand) bool {
			r.gate.Lock()
			defer r.gate.Unlock()
			step(between(random, 0, time.Hour))
			return true
		}},
		{"clock back", 10 * time.Second, func(_ *run, random *rand.Rand) bool {
			step(-between(random, 0, longTTL))
			return true
		}},
	}
}

// LateThenSilent is a network that delivers an answer late, and then nothing more.
func LateThenSilent(late, silent time.Duration) Fault {
	return Fault{"late, then silent", late, onRelay(func(l *relay.Relay, random *rand.Rand) {
		l.HoldReplies()
		time.Sleep(late)
		l.Pass()
		time.Sleep(50 * time.Millisecond)
		l.Hole()
		time.Sleep(silent)
	})}
}

// Pick returns faults by their names, each as often as every says.
func Pick(every time.Duration, names ...string) []Fault {
	all := slices.Concat(ProcessFaults(), NetworkFaults(), ServerFaults())
	var picked []Fault
	for _, name := range names {
		i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })
		picked = append(picked, Fault{name, every, all[i].do})
	}
	return picked
}

// OwnFault is one that only one service has. It reports whether it struck.
func OwnFault(name string, every time.Duration, strike func() bool) Fault {
	return Fault{name, every, func(*run, *rand.Rand) bool { return strike() }}
}

// inject lets a fault happen until calm is closed.
func (r *run) inject(f Fault, random *rand.Rand, calm <-chan struct{}) {
	for {
		select {
		case <-calm:
			return
		case <-time.After(between(random, 0, 2*f.Every)):
		}
		at := now()
		if f.do(r, random) {
			r.tally.fault(f.Name, at, now())
		}
	}
}

// victim is a lock program by chance; nil if none runs.
func (r *run) victim(random *rand.Rand) *process {
	list := r.alive()
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b *process) int { return a.Process.Pid - b.Process.Pid })
	return list[random.IntN(len(list))]
}

// signal sends a signal. Whom it kills is dead when it returns.
func signal(s syscall.Signal) func(int, *rand.Rand) {
	return func(pid int, _ *rand.Rand) {
		_ = syscall.Kill(pid, s)
		for end := time.Now().Add(time.Second); s == syscall.SIGKILL && anyLives([]int{pid}) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
}

// pause stops a process for a while, in half of the cases for longer than its lease.
func pause(pid int, random *rand.Rand) {
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	time.Sleep(between(random, 0, longest))
	_ = syscall.Kill(pid, syscall.SIGCONT)
}

// onDlock does something to a lock program. One whose guard is away, or is being struck,
// is spared where it would take both to stop all of the command: dlock promises that as
// long as one of them can act. (freezeAll strikes both, and knows what to expect.)
func onDlock(do func(int, *rand.Rand)) func(*run, *rand.Rand) bool {
	return func(r *run, random *rand.Rand) bool {
		p := r.victim(random)
		if p == nil || !p.struck.TryLock() {
			return false
		}
		defer p.struck.Unlock()
		if guard, commands := p.split(); guard == 0 && len(commands) > 0 && p.family() {
			return false
		}
		do(p.Process.Pid, random)
		return true
	}
}

func onGuard(do func(int, *rand.Rand)) func(*run, *rand.Rand) bool {
	return func(r *run, random *rand.Rand) bool {
		for range 20 {
			if p := r.victim(random); p != nil && p.strikeGuard(func(guard int) { do(guard, random) }) {
				return true
			}
			time.Sleep(5 * time.Millisecond)
		}
		return false
	}
}

// strikeGuard does something to the guard of a lock program that is well, if it has one.
func (p *process) strikeGuard(do func(int)) bool {
	if !p.struck.TryLock() {
		return false
	}
	defer p.struck.Unlock()
	guard, _ := p.split()
	if guard != 0 {
		do(guard)
	}
	return guard != 0
}

func onCommand(do func(int, *rand.Rand)) func(*run, *rand.Rand) bool {
	return func(r *run, random *rand.Rand) bool {
		for range 20 {
			// Who outlives a command in a session of its own, is a daemon and left alone.
			if p := r.victim(random); p != nil && p.flavour != "setsid" {
				if _, commands := p.split(); len(commands) > 0 {
					do(commands[0], random)
					return true
				}
			}
			time.Sleep(5 * time.Millisecond)
		}
		return false
	}
}

// freezeAll stops the lock program of who is inside, its guard, and all of its command
// for longer than the lease. Nothing can keep the command from going on for a moment
// when it thaws; that it is only a moment is what counts here.
func freezeAll(r *run, _ *rand.Rand) bool {
	for range 200 {
		if p, token := r.inside(); p != nil {
			return r.freeze(p, token)
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}

func (r *run) freeze(p *process, token string) bool {
	if !p.struck.TryLock() {
		return false
	}
	defer p.struck.Unlock()
	tree := descendants(p.Process.Pid)
	if len(tree) < 2 || r.resource.Freeze(token) != nil {
		return false
	}
	r.mu.Lock()
	r.frozen[token] = now()
	r.mu.Unlock()
	for _, pid := range tree {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	time.Sleep(longest)
	for _, pid := range tree {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
	thawed := time.Now()
	for anyLives(tree) && time.Since(thawed) < overrun {
		time.Sleep(time.Millisecond)
	}
	if r.Service.Leases && anyLives(tree) { // elsewhere it may go on
		r.tally.overran.Add(1)
	}
	r.tally.thaw(time.Since(thawed))
	_ = r.resource.Thaw(token)
	return true
}

// overrun is how long all of a command may live after it was frozen beyond its lease, on
// a machine as slow as may be.
const overrun = 5 * time.Second

// inside finds the lock program whose section is alone in the resource, and its token.
func (r *run) inside() (*process, string) {
	owner := r.resource.Owner()
	for _, p := range r.alive() {
		_, commands := p.split()
		for _, pid := range commands {
			env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
			if owner != "" && slices.Contains(strings.Split(string(env), "\x00"), "DLOCK_TOKEN="+owner) {
				return p, owner
			}
		}
	}
	return nil, ""
}

// anyLives tells whether one of the processes is there, and no zombie.
func anyLives(pids []int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool {
		p, err := proc.Get(pid)
		return err == nil && !p.Zombie
	})
}

// descendants lists a process and all that it started.
func descendants(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children(all[i])...)
	}
	return all
}

// revoke is a third party that forces the release of a hold.
func revoke(r *run, random *rand.Rand) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	b := r.Service.Open(r.Service.URL)
	defer b.Close()
	list, err := b.Inspect(ctx, lockName)
	if err != nil || len(list) != 1 || len(list[0].Holders) == 0 {
		return false
	}
	h := list[0].Holders[random.IntN(len(list[0].Holders))]
	if h.Token == "" {
		return false
	}
	_, err = b.Revoke(ctx, lockName, h.Token, false)
	return err == nil
}

// onRelay does something to one of the ways, one thing at a time.
func onRelay(do func(*relay.Relay, *rand.Rand)) func(*run, *rand.Rand) bool {
	return func(r *run, random *rand.Rand) bool {
		l := r.Service.Relays[random.IntN(len(r.Service.Relays))]
		r.relays[l].Lock()
		defer r.relays[l].Unlock()
		do(l, random)
		l.Pass()
		return true
	}
}

// whileFor lets a fault of the network last for a while.
func whileFor(from, to time.Duration, fault func(*relay.Relay)) func(*relay.Relay, *rand.Rand) {
	return func(l *relay.Relay, random *rand.Rand) {
		fault(l)
		time.Sleep(between(random, from, to))
	}
}
