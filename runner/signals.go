package runner

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// wanted are the signals that a run reacts to or passes on. Not among them: those
// that the Go runtime uses itself, SIGCHLD, and SIGTSTP, which must stop this process.
var wanted = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM,
	unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGWINCH, unix.SIGCONT,
}

// Signals subscribes to the signals that a run reacts to or passes on. SIGHUP and
// SIGINT stay ignored, for the command too, if they were when this process started.
func Signals() <-chan os.Signal {
	c := make(chan os.Signal, 64)
	for _, sig := range wanted {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	return c
}

// Die ends this process by sig, so that its parent sees it die of that signal.
func Die(sig syscall.Signal) {
	// A core file of ours would tell nobody anything.
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	signal.Reset(sig)
	defaultAction(sig)
	_ = unix.Kill(os.Getpid(), sig)
	time.Sleep(time.Second) // the signal may be taken by another thread
	os.Exit(128 + int(sig))
}
