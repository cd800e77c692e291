package file

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// flockContext waits for the kernel lock on f until ctx ends, and then returns the
// context's cause. The wait is one blocking flock(2) on a thread of its own, so
// that the kernel keeps our place in its line.
func flockContext(ctx context.Context, f *os.File, how int) error {
	if err := flock(f, how|unix.LOCK_NB); !errors.Is(err, errWouldBlock) {
		return err
	}
	var stop atomic.Bool
	thread := make(chan int, 1)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- unix.Gettid()
		done <- flockUntil(&stop, f, how)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	stop.Store(true)
	if err := interrupt(<-thread, done); err == nil {
		_ = unix.Flock(int(f.Fd()), unix.LOCK_UN) // it won just then
	}
	return context.Cause(ctx)
}

func flockUntil(stop *atomic.Bool, f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) || stop.Load() {
			return err
		}
	}
}

// interrupt sends the wake-up signal to thread until its blocking call has
// returned: a signal that arrives just before the call does not interrupt it.
func interrupt(thread int, done <-chan error) error {
	interruptible()
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		_ = unix.Tgkill(os.Getpid(), thread, wakeUp)
		select {
		case err := <-done:
			return err
		case <-time.After(pause):
		}
	}
}

// wakeUp is a real-time signal that neither Go nor the C library uses.
const wakeUp = syscall.Signal(40)

// interruptible makes wakeUp a signal that interrupts system calls. Go installs all
// its handlers with SA_RESTART, under which the kernel resumes flock(2); so Go is
// asked to install its handler, and then that flag is taken off.
var interruptible = sync.OnceFunc(func() {
	signal.Notify(make(chan os.Signal, 1), wakeUp)
	// The kernel's struct sigaction: handler, flags, then fields left as they are.
	var action struct {
		handler, flags uintptr
		rest           [14]uintptr
	}
	const restart, sigsetSize = 0x10000000, 8 // SA_RESTART, and the size of the kernel's sigset_t
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(wakeUp), 0, uintptr(unsafe.Pointer(&action)), sigsetSize, 0, 0)
	if errno == 0 {
		action.flags &^= restart
		_, _, errno = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(wakeUp), uintptr(unsafe.Pointer(&action)), 0, sigsetSize, 0, 0)
	}
	if errno != 0 {
		panic("file: rt_sigaction: " + errno.Error())
	}
})
