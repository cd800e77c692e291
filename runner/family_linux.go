package runner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/proc"
)

func procDir(pid int) string { return "/proc/" + strconv.Itoa(pid) }

// isGuard tells whether a process is a guard, ours or that of another run. Guards
// are never killed: each ends by itself when it has finished.
func isGuard(p proc.Process) bool {
	args, err := os.ReadFile(procDir(p.PID) + "/cmdline")
	return err == nil && string(args) == guardName+"\x00" && sameProgram(p.PID)
}

// isNested tells whether a process is a run like this one, which passes a SIGTERM
// on by itself.
func isNested(p proc.Process) bool { return sameProgram(p.PID) && !isGuard(p) }

// carries tells whether the mark stands in the environment that a process started with.
func carries(p proc.Process, mark string) bool {
	env, err := os.ReadFile(procDir(p.PID) + "/environ")
	return err == nil && mark != "" && bytes.Contains(env, []byte(mark))
}

// ownChildren returns the children that this process has: after `job & exec dlock …`
// in a script there are some, and they are none of the command's.
func ownChildren() map[int]bool {
	err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if errors.Is(err, unix.ECHILD) {
		return nil // as a rule, and without a look at all processes
	}
	children := map[int]bool{}
	list, _ := proc.List()
	for _, p := range list {
		if p.PPID == os.Getpid() {
			children[p.PID] = true
		}
	}
	return children
}

// hasChildren tells whether there are children beside the guard and the strangers,
// without a look at all processes. It may be wrong in saying yes.
func (l *life) hasChildren() bool {
	// The kernel lists children by thread: ours forked the command, and orphans are
	// given to the process's first one.
	for _, thread := range []int{os.Getpid(), unix.Gettid()} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", thread))
		if err != nil {
			return true // the kernel was built without this
		}
		for _, field := range strings.Fields(string(text)) {
			if pid, _ := strconv.Atoi(field); !l.guard.is(pid) && !l.strangers[pid] {
				return true
			}
		}
	}
	return false
}

// descendants returns our living descendants, without guards and strangers. As a
// subreaper we see those too whose parents ended. Below a process for which leave
// is true nothing is returned, but it is itself.
func (l *life) descendants(leave func(proc.Process) bool) ([]proc.Process, error) {
	list, err := proc.List()
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(p proc.Process) bool { return l.strangers[p.PID] })
	return living(proc.Descendants(list, os.Getpid(), leave)), nil
}

// living drops the zombies and the guards.
func living(list []proc.Process) []proc.Process {
	var alive []proc.Process
	for _, p := range list {
		if !p.Zombie && !isGuard(p) {
			alive = append(alive, p)
		}
	}
	return alive
}

// strays returns what a guard must kill. While its parent lives (but is late), that
// is whatever descends from the parent. After its death it is the command's group or,
// in the foreground, the command and its descendants; and in either case whoever carries the mark.
func (w *watch) strays() []proc.Process {
	list, err := proc.List()
	if err != nil {
		return w.known()
	}
	list = slices.DeleteFunc(list, func(p proc.Process) bool {
		return p.Start < w.orders.since && (w.orphan || p.PID != w.parent)
	})
	wanted := map[int]bool{}
	if !w.orphan {
		mark(wanted, proc.Descendants(list, w.parent, nil))
	}
	groupAlive := w.group.exists() && w.group.alive()
	for _, p := range list {
		switch {
		case p.PID == os.Getpid() || p.PID == w.parent && !w.orphan:
			continue
		case groupAlive && p.PGID == w.group.id:
			wanted[p.PID] = true
		case w.orders.pid == p.PID && w.orders.start == p.Start:
			wanted[p.PID] = true
			mark(wanted, proc.Descendants(list, p.PID, nil))
		case !p.Zombie && carries(p, w.orders.mark):
			wanted[p.PID] = true
		}
	}
	return living(chosen(list, wanted))
}

func mark(set map[int]bool, list []proc.Process) {
	for _, p := range list {
		set[p.PID] = true
	}
}

func chosen(list []proc.Process, set map[int]bool) []proc.Process {
	var some []proc.Process
	for _, p := range list {
		if set[p.PID] {
			some = append(some, p)
		}
	}
	return some
}
