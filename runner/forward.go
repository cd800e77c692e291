package runner

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
)

// handle acts on a signal that we got, or passes it on.
func (l *life) handle(sig syscall.Signal) {
	if l.stop.killing {
		return
	}
	if !l.stop.killAt.IsZero() && (sig == unix.SIGINT || sig == unix.SIGTERM) {
		l.report(Event{Kind: Killing, Signal: sig})
		l.kill(everything)
		return
	}
	if l.exited && (sig == unix.SIGINT || sig == unix.SIGQUIT || sig == unix.SIGHUP) {
		sig = unix.SIGTERM // there is no command any more to decide what it means
	} else if l.foreground && sentToGroup(sig) {
		return // the command has it already
	}
	switch sig {
	case unix.SIGTERM:
		l.report(Event{Kind: Stopping, Signal: sig, Grace: l.spec.Grace})
		l.terminate(members, boottime.Now().Add(l.spec.Grace))
	case unix.SIGINT, unix.SIGQUIT, unix.SIGHUP, unix.SIGCONT, unix.SIGWINCH:
		l.sendMembers(sig)
	default:
		if !l.exited {
			_ = unix.Kill(l.pid, sig)
		}
	}
}

// sentToGroup tells whether the terminal, or the shell, sends a signal to its whole
// foreground group. A hang-up does; a SIGHUP while the terminal is there was for us alone.
func sentToGroup(sig syscall.Signal) bool {
	switch sig {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH, unix.SIGCONT:
		return true
	case unix.SIGHUP:
		_, err := foregroundGroup()
		return err != nil
	}
	return false
}

// sendMembers passes a signal on to the command's group.
func (l *life) sendMembers(sig syscall.Signal) {
	if l.group.exists() {
		_ = l.group.signal(sig)
		return
	}
	list, err := l.descendants(isNested)
	if err != nil {
		list = l.aliveUnlisted()
	}
	var inGroup []proc.Process
	for _, p := range list {
		if l.isMember(p) {
			inGroup = append(inGroup, p)
		}
	}
	l.sendTo(inGroup, sig)
}
