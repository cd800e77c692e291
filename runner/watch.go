package runner

import (
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
)

// ordersFD is where a guard finds its pipe; the files it keeps open follow.
const ordersFD = 3

// guardMain does a guard's work, if this process was started as one, and then returns
// true and the exit code.
func guardMain() (isGuard bool, code int) {
	if len(os.Args) != 1 || os.Args[0] != guardName {
		return false, 0
	}
	var st unix.Stat_t
	if err := unix.Fstat(ordersFD, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return false, 0
	}
	signal.Ignore() // all of them: only our parent's end ends us
	w := &watch{parent: os.Getppid()}
	w.run()
	return true, 0
}

// watch is the guard's work.
type watch struct {
	parent int
	orders orders
	group  group
	orphan bool   // the parent died
	input  string // the beginning of a message
}

// resumeLimit bounds how late a resume from suspend is noticed: the time-outs of
// poll(2) do not count suspend.
const resumeLimit = time.Second

// run returns when the parent has died and nothing is left of the command. A parent
// that lives kills us when it needs no guard any more.
func (w *watch) run() {
	for {
		for patience := w.patience(); w.read(patience); {
			patience = 0 // the last word counts
		}
		switch {
		case w.orphan:
			w.killAll()
			return
		case reached(boottime.Now(), w.orders.kill):
			w.killOnce()
		}
	}
}

// patience is how long nothing need be done unless a message comes.
func (w *watch) patience() time.Duration {
	if w.orders.kill.IsZero() {
		return -1
	}
	// Past the deadline, when all was killed, the parent must still be outwaited.
	left := w.orders.kill.Sub(boottime.Now())
	if left <= 0 {
		return 0
	}
	return min(left, resumeLimit)
}

// read takes in what the parent has to say within the time; false if it is silent
// or dead.
func (w *watch) read(timeout time.Duration) bool {
	fds := []unix.PollFd{{Fd: ordersFD, Events: unix.POLLIN}}
	poll(fds, timeout)
	if fds[0].Revents == 0 {
		return false
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(ordersFD, buf)
	switch {
	case err == unix.EINTR || err == unix.EAGAIN:
		return false
	case n <= 0:
		w.orphan = true
		return false
	}
	lines := strings.Split(w.input+string(buf[:n]), "\n")
	w.input = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		if o, err := parseOrders(line); err == nil {
			w.obey(o)
		}
	}
	return true
}

func (w *watch) obey(o orders) {
	w.orders = o
	if !o.group || o.pid == 0 || w.group.exists() {
		return
	}
	// If the number was given to another process already, the group is no more.
	g := openGroup(o.pid)
	if p, err := proc.Get(o.pid); err != nil || p.Start == o.start {
		w.group = g
	}
}

// killAll kills until nothing but zombies is left.
func (w *watch) killAll() {
	for {
		w.killGroup() // at once, before we look around
		if w.killStrays() {
			continue
		}
		// A process in the midst of an exec shows no environment for a moment.
		time.Sleep(lookAgain)
		if w.killStrays() {
			continue
		}
		if !w.group.exists() || !w.group.hidden() {
			return
		}
		time.Sleep(resumeLimit) // whom we may neither kill nor see is waited for
	}
}

// killOnce kills what is there while the parent is late, and waits a moment for
// the parent's word or for one of the processes to end.
func (w *watch) killOnce() {
	w.killGroup()
	if !w.killStrays() {
		awaitEnd(nil, ordersFD, resumeLimit)
	}
}

func (w *watch) killGroup() {
	if w.group.exists() {
		_ = w.group.signal(unix.SIGKILL)
	}
}

// killStrays kills what is left and waits until one of them has ended; false if
// there was nothing.
func (w *watch) killStrays() bool {
	var handles []handle
	for _, p := range w.strays() {
		if h, ok := hold(p); ok {
			defer h.release()
			handles = append(handles, h)
		}
	}
	if len(handles) == 0 {
		return false
	}
	send(unix.SIGKILL, handles) // whom we may not kill is waited for
	in := ordersFD
	if w.orphan {
		in = -1 // its end would be readable for ever
	}
	awaitEnd(handles, in, resumeLimit)
	return true
}

// known returns the command as far as it is known without a list of processes.
func (w *watch) known() []proc.Process {
	switch {
	case w.group.exists():
		if w.group.alive() {
			return []proc.Process{{PID: -w.group.id, PGID: w.group.id}}
		}
	case w.orders.pid != 0 && unix.Kill(w.orders.pid, 0) == nil:
		return []proc.Process{{PID: w.orders.pid}}
	}
	return nil
}
