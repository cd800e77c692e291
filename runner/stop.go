package runner

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
)

// scope says which processes are meant.
type scope int

const (
	members    scope = iota // what is left in the command's group
	everything              // and whatever left it
)

// stopping is how far the command's end has been brought about.
type stopping struct {
	cause Cause
	asked bool // Stop was called, and has been acted upon

	waitFor scope            // what must be gone before all is over
	killAt  boottime.Instant // when SIGKILL follows; zero: no stop is under way
	kills   scope            // whom it kills
	killing bool             // SIGKILL was sent

	termed [everything + 1]bool // who had SIGTERM already: nobody gets it twice
	left   []proc.Process       // alive at the end of the deadline
}

// limits returns the deadline and what Stop asked for.
func (l *life) limits() (deadline, stop limits, asked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline, l.stopAt, l.stopAsked
}

// lookAtClock does whatever is due.
func (l *life) lookAtClock() {
	if l.stop.killing {
		return
	}
	now := boottime.Now()
	deadline, stop, asked := l.limits()
	if reached(now, deadline.kill) {
		l.blame(Deadline)
		l.kill(everything)
		return
	}
	if asked {
		l.blame(Stopped)
		l.stop.killAt = earliest(l.stop.killAt, stop.kill)
		l.stop.kills = everything
	}
	if reached(now, l.stop.killAt) {
		l.kill(l.stop.kills)
		return
	}
	if asked && !l.stop.asked {
		l.stop.asked = true
		l.terminate(everything, stop.kill)
	}
	if reached(now, l.maxAt) {
		l.maxAt = 0
		l.blame(MaxRun)
		l.report(Event{Kind: Stopping, Grace: l.spec.Grace})
		l.terminate(everything, now.Add(l.spec.Grace))
	}
}

// blame remembers the first reason why the command was stopped.
func (l *life) blame(cause Cause) {
	if l.stop.cause == Ended {
		l.stop.cause = cause
	}
}

// terminate sends SIGTERM to a scope and schedules SIGKILL for everything.
func (l *life) terminate(s scope, killAt boottime.Instant) {
	l.stop.waitFor = max(l.stop.waitFor, s)
	l.stop.kills = everything
	l.stop.killAt = earliest(l.stop.killAt, killAt)
	l.sendTerm(s)
}

// sendTerm sends SIGTERM, once to each: what runs below a nested run gets it from there.
func (l *life) sendTerm(s scope) {
	first := !l.stop.termed[members]
	outside := s == everything && !l.stop.termed[everything]
	l.stop.termed[members], l.stop.termed[s] = true, true
	if first && l.group.exists() {
		_ = l.group.signal(unix.SIGTERM) // all of it at one moment
	}
	if !first && !outside {
		return
	}
	list, err := l.descendants(isNested)
	if err != nil && l.foreground && first && !l.exited {
		_ = unix.Kill(l.pid, unix.SIGTERM)
	}
	for _, p := range list {
		switch {
		case l.group.exists() && l.isMember(p): // has it
		case l.belongs(p) && first, !l.belongs(p) && outside:
			l.sendTo([]proc.Process{p}, unix.SIGTERM)
		}
	}
}

// kill sends SIGKILL to a scope, and lets step repeat it until nothing is left.
func (l *life) kill(s scope) {
	l.stop.killing = true
	l.stop.waitFor = max(l.stop.waitFor, s)
	l.backoff = 10 * time.Millisecond
	if l.group.exists() {
		_ = l.group.signal(unix.SIGKILL) // at once, before we look around
	}
}

// killRound kills what is left; true if that is nothing, or the time is over.
func (l *life) killRound() bool {
	left := l.alive(l.stop.waitFor)
	if len(left) == 0 && l.exited {
		return true
	}
	deadline, stop, _ := l.limits()
	if reached(boottime.Now(), earliest(deadline.end, stop.end)) {
		l.stop.left = left
		l.report(Event{Kind: Remaining, Processes: named(left)})
		return true
	}
	l.sendTo(left, unix.SIGKILL)
	l.backoff = min(2*l.backoff, time.Second)
	return false
}

// sendTo signals processes, and reports once each that we may not signal.
func (l *life) sendTo(list []proc.Process, sig syscall.Signal) {
	var refused []proc.Process
	for _, p := range list {
		h, ok := hold(p)
		if !ok {
			continue
		}
		if h.signal(sig) == unix.EPERM && !l.refused[p.PID] {
			l.refused[p.PID] = true
			refused = append(refused, p)
		}
		h.release()
	}
	if len(refused) > 0 {
		l.report(Event{Kind: NotPermitted, Processes: named(refused)})
	}
}
