package torture

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

func now() int64 { return int64(boottime.Now()) }

// Build builds a program of the harness, or dlock itself ("dlock").
func Build(t testing.TB, program string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), program)
	from := "./" + program
	if program == "dlock" {
		from = "../../.."
	}
	c := exec.Command("go", "build", "-o", out, from)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := c.CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", program, err, text)
	}
	return out
}

// process is a lock program that runs a section.
type process struct {
	*exec.Cmd
	id      string
	flavour string
	struck  sync.Mutex // held while a fault befalls it or its guard
}

// family tells whether the section has processes that outlive its first one.
func (p *process) family() bool { return p.flavour == "child" || p.flavour == "setsid" }

// processes is a contender that starts one lock program after the other.
func (r *run) processes(contender int) {
	random := r.random(contender)
	for !r.stopped() {
		r.gate.RLock()
		c := &Choice{Random: random, Mode: anyMode(random), Work: between(random, 0, 10*time.Millisecond), Flavour: "plain"}
		if random.IntN(40) == 0 { // long enough for faults, renewals and losses
			c.Work = between(random, 100*time.Millisecond, 1500*time.Millisecond)
		}
		if random.IntN(4) == 0 {
			c.Flavour = []string{"child", "setsid"}[random.IntN(2)]
		}
		way := r.Service.Ways[contender%len(r.Service.Ways)]
		r.process(contender, r.Locker(way, c), c)
		r.gate.RUnlock()
	}
}

// process runs one lock program to its end.
func (r *run) process(contender int, args []string, c *Choice) {
	id := uuid.NewString()
	args = append(args, r.section, string(r.resource), string(c.Mode.Kind), strconv.Itoa(c.Mode.N),
		strconv.FormatInt(c.Work.Milliseconds(), 10), c.Flavour)
	p := &process{Cmd: exec.Command(args[0], args[1:]...), id: id, flavour: c.Flavour}
	var said bytes.Buffer
	p.Env = append(os.Environ(), "TORTURE_ID="+id)
	p.Stderr = &said
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.WaitDelay = 10 * time.Second // a section that lives on has stderr
	h := r.begin(id, contender)
	if err := p.Start(); err != nil {
		r.t.Error(err)
		return
	}
	r.add(p)
	err := p.Wait()
	r.remove(p)
	h.how = fmt.Sprintf("dlock %d: %s: %v; %s", p.Process.Pid, strings.Join(args, " "), err, said.String())
	r.finish(h, err == nil)
	r.tally.processes.Add(1)
	if why := r.wrong(err, said.String()); why != "" {
		r.t.Errorf("%s: %s\n%s", strings.Join(args, " "), why, said.String())
	}
}

// wrong tells what is wrong with the end of a lock program, whatever has befallen it.
func (r *run) wrong(err error, said string) string {
	if strings.Contains(said, "panic") || strings.Contains(said, "DATA RACE") || strings.Contains(said, "section:") {
		return "it says so"
	}
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) {
		if errors.Is(err, exec.ErrWaitDelay) {
			return "a process of the section outlived it"
		}
		return ""
	}
	switch code := exit.ExitCode(); code {
	case 64, 70, 77, 126, 127:
		return fmt.Sprint("exit code ", code)
	}
	return ""
}

func (r *run) add(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live[p] = true
}

func (r *run) remove(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.live, p)
}

// alive lists the lock programs that run now.
func (r *run) alive() []*process {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*process
	for p := range r.live {
		list = append(list, p)
	}
	return list
}

func (p *process) kill() { _ = p.Process.Kill() }

// killAll ends a lock program and what it started.
func (p *process) killAll() {
	for _, pid := range descendants(p.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// children lists the processes that a process has started.
func children(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// guard is the child of a dlock that guards, commands are its others.
func (p *process) split() (guard int, commands []int) {
	for _, child := range children(p.Process.Pid) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
		if strings.HasPrefix(string(name), "dlock-guard") {
			guard = child
		} else {
			commands = append(commands, child)
		}
	}
	return guard, commands
}

// anyMode is a mode by chance.
func anyMode(random interface{ IntN(int) int }) backend.Mode {
	switch random.IntN(6) {
	case 0:
		return backend.Mode{Kind: backend.Shared}
	case 1:
		return backend.Mode{Kind: backend.Slots, N: slotCount}
	}
	return backend.Mode{Kind: backend.Exclusive}
}
