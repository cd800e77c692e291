package daemon

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// start starts cmd so that the kernel kills it when this process dies. What counts as
// its death is that of the thread that has forked; so all are started on one
// thread, which lasts as long as the process.
func start(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	answer := make(chan error)
	starter() <- func() { answer <- cmd.Start() }
	return <-answer
}

var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range work {
			do()
		}
	}()
	return work
})
