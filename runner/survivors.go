package runner

import (
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
)

const (
	firstReport = time.Second // most survivors are about to end, and nobody need know
	nextReport  = time.Minute
)

// isMember tells whether a descendant is in the command's process group.
func (l *life) isMember(p proc.Process) bool {
	if l.foreground {
		return p.PGID == unix.Getpgrp()
	}
	return p.PGID == l.group.id
}

// belongs tells whether a descendant counts as a part of the command: it is in its
// group, or it is a nested run, which may work under our lock wherever it went.
func (l *life) belongs(p proc.Process) bool { return l.isMember(p) || isNested(p) }

// alive returns the processes of a scope that live.
func (l *life) alive(s scope) []proc.Process {
	if list := l.look(s); len(list) > 0 {
		return list
	}
	// A list of processes is no snapshot: while it was read, one that was still to
	// come may have been born to one that was gone already. So look twice.
	return l.look(s)
}

func (l *life) look(s scope) []proc.Process {
	list, err := l.descendants(nil)
	if err != nil {
		return l.aliveUnlisted()
	}
	if s == members {
		list = slices.DeleteFunc(list, func(p proc.Process) bool { return !l.belongs(p) })
	}
	if len(list) == 0 && l.group.exists() && l.group.hidden() {
		return l.aliveUnlisted()
	}
	return list
}

// aliveUnlisted is alive where processes cannot be listed: the group as a whole, or
// in the foreground the command alone.
func (l *life) aliveUnlisted() []proc.Process {
	switch {
	case l.group.exists() && l.group.alive():
		return []proc.Process{{PID: -l.group.id, PGID: l.group.id}}
	case l.foreground && !l.exited:
		return []proc.Process{{PID: l.pid}}
	}
	return nil
}

// lookAtSurvivors deals with what the command left when it ended; true if nothing is
// left that has to be waited for.
func (l *life) lookAtSurvivors() bool {
	if l.stop.waitFor == members {
		if l.spec.Survivors == Ignore {
			return true
		}
		if l.group.exists() && !l.group.alive() && !l.hasChildren() {
			return true // the usual end, and a cheap one
		}
	}
	if !l.reaped && !reached(boottime.Now(), l.reportAt) && slices.ContainsFunc(l.survivors, unchanged) {
		return false // looking at those that we know is cheaper than at all
	}
	l.reaped = false
	l.survivors = l.alive(l.stop.waitFor)
	if len(l.survivors) == 0 {
		return true
	}
	if l.spec.Survivors == Kill && l.stop.killAt.IsZero() {
		l.report(Event{Kind: KillingSurvivors, Grace: l.spec.Grace, Processes: named(l.survivors)})
		l.stop.killAt = boottime.Now().Add(l.spec.Grace)
		l.sendTerm(members)
	}
	l.nameSurvivors()
	return false
}

// unchanged tells whether a process still lives, and in the group where it was seen.
func unchanged(p proc.Process) bool {
	now, err := proc.Get(p.PID)
	return err == nil && now.Start == p.Start && now.PGID == p.PGID && !now.Zombie
}

// nameSurvivors reports now and then who is waited for.
func (l *life) nameSurvivors() {
	now := boottime.Now()
	switch {
	case l.spec.Survivors != Wait || !l.stop.killAt.IsZero():
		return // their end is near
	case l.reportAt.IsZero():
		l.reportAt = now.Add(firstReport)
	case reached(now, l.reportAt):
		l.report(Event{Kind: WaitingSurvivors, Processes: named(l.survivors)})
		l.reportAt = now.Add(nextReport)
	}
}
