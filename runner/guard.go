package runner

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/boottime"
)

// guardName is the whole command line of a guard.
const guardName = "dlock-guard"

// The pause between two starts of a guard. It grows while they die young, so that a
// machine where none can live is not kept busy with starting them.
const (
	firstGuardPause = 10 * time.Millisecond
	lastGuardPause  = time.Second
)

// guard is our side of the process that kills the command should we die or be
// stopped. It reads its orders from a pipe, whose end tells it of our death.
type guard struct {
	keep          []*os.File
	stayInSession bool // in a group of its own; otherwise in a session of its own

	mu      sync.Mutex
	orders  orders
	pipe    *os.File // nil when there is no guard
	pid     int
	started boottime.Instant
	pause   time.Duration // from then to the next start, at least
	gone    bool          // dismissed: no more guards
}

// guardEnv is a guard's environment. It does one thing after another; with one processor
// the Go runtime starts fewer threads, and so sooner.
var guardEnv = []string{"GOMAXPROCS=1"}

// start starts a guard. It gets its pipe and the files to keep, and nothing else of ours,
// the environment included: it must not carry anybody's mark.
func (g *guard) start() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := boottime.Now()
	if g.pause = min(2*g.pause, lastGuardPause); now.Sub(g.started) > 2*lastGuardPause {
		g.pause = firstGuardPause
	}
	g.started = now
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	g.pipe = w
	if err := g.write(); err != nil { // before the guard is there: it need not be waited for
		return errors.Join(err, g.drop())
	}
	files := []uintptr{null.Fd(), null.Fd(), null.Fd(), r.Fd()}
	for _, f := range g.keep {
		files = append(files, f.Fd())
	}
	path, err := ownExecutable()
	if err == nil {
		attr := &syscall.ProcAttr{Dir: "/", Env: guardEnv, Files: files, Sys: &syscall.SysProcAttr{Setsid: !g.stayInSession, Setpgid: g.stayInSession}}
		g.pid, err = syscall.ForkExec(path, []string{guardName}, attr)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("cannot start the guard: %w", err), g.drop())
	}
	return nil
}

// tell changes the orders and passes them on.
func (g *guard) tell(change func(*orders)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(&g.orders)
	if g.pipe == nil {
		return // the next guard will hear it
	}
	if errors.Is(g.write(), unix.EAGAIN) {
		_ = unix.Kill(g.pid, unix.SIGKILL) // it does not read; reaped, it is replaced
	}
}

// write sends the orders without waiting: a pipe is full only if nobody reads it.
// So short a message is written whole or not at all.
func (g *guard) write() error {
	conn, err := g.pipe.SyscallConn()
	if err != nil {
		return err
	}
	err2 := conn.Write(func(fd uintptr) bool {
		_, err = unix.Write(int(fd), g.orders.line())
		return true
	})
	return errors.Join(err, err2)
}

// is tells whether the guard is that process.
func (g *guard) is(pid int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return pid == g.pid
}

// reaped tells that the child pid has ended.
func (g *guard) reaped(pid int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if pid == g.pid {
		_ = g.drop()
	}
}

func (g *guard) drop() error {
	g.pid = 0
	err := g.pipe.Close()
	g.pipe = nil
	return err
}

// nextStart is when a missing guard may be replaced; zero while there is one.
func (g *guard) nextStart() boottime.Instant {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pipe != nil || g.gone {
		return 0
	}
	return g.started.Add(g.pause)
}

// dismiss ends the guard, once nothing of the command is left to be guarded. It is
// killed, since after a short command it may not have begun to read yet, and would
// still be starting while whoever waits for us has gone on.
func (g *guard) dismiss() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone = true
	if g.pipe != nil {
		_ = unix.Kill(g.pid, unix.SIGKILL) // it is still our child
	}
}

// reap waits for the end of a guard that was dismissed.
func (g *guard) reap() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.pipe != nil {
		_, _ = unix.Wait4(g.pid, nil, 0, nil)
		_ = g.drop()
	}
}
