//go:build linux

// Command section is the critical section of the torture harness, run by a lock
// program as its command:
//
//	section DIR KIND N MS FLAVOUR
//
// It enters the resource DIR under the hold that DLOCK_TOKEN and DLOCK_FENCE tell of,
// writes to it for about MS milliseconds, and leaves. The flavour says who else of
// its processes is inside: nobody (plain), a child that outlasts it a little (child),
// a child in a session of its own (setsid), or nobody, but only SIGKILL ends it, and slowly (big),
// or it does not end at once when asked to (stubborn).
package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest/torture/resource"
)

// bigMemory is what a big section fills, in bytes.
const bigMemory = 256 << 20

// stubbornness is how long a stubborn section goes on after SIGTERM.
const stubbornness = 400 * time.Millisecond

func main() {
	if len(os.Args) == 3 && os.Args[1] == "linger" {
		time.Sleep(milliseconds(os.Args[2]))
		return
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "section:", err)
		os.Exit(1)
	}
}

func milliseconds(s string) time.Duration {
	ms, _ := strconv.Atoi(s)
	return time.Duration(ms) * time.Millisecond
}

func run(args []string) error {
	if len(args) != 5 {
		return fmt.Errorf("usage: section DIR KIND N MS FLAVOUR")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	fence, err := strconv.ParseUint(os.Getenv("DLOCK_FENCE"), 10, 64)
	if err != nil {
		return err
	}
	v, err := resource.Dir(args[0]).Enter(resource.Hold{
		ID: os.Getenv("TORTURE_ID"), Token: os.Getenv("DLOCK_TOKEN"), Fence: fence,
		Mode: backend.Mode{Kind: backend.Kind(args[1]), N: n},
	})
	if err != nil {
		return err
	}
	return work(v, milliseconds(args[3]), args[4])
}

// work writes to the resource until the time is over or it is told to stop.
func work(v *resource.Visit, d time.Duration, flavour string) error {
	var child *exec.Cmd
	stop := make(chan os.Signal, 1)
	switch flavour {
	case "child", "setsid":
		if flavour == "setsid" { // it must not end by itself before its companion
			signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
		}
		var err error
		if child, err = companion(v, d+20*time.Millisecond, flavour == "setsid"); err != nil {
			return err
		}
	case "big":
		signal.Ignore(syscall.SIGTERM)
		if _, err := unix.Mmap(-1, 0, bigMemory, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE); err != nil {
			return err
		}
	case "stubborn":
		signal.Notify(stop, syscall.SIGTERM)
	}
	end := time.After(d)
	for {
		if err := v.Write(); err != nil {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
			continue
		case <-stop:
			end = time.After(stubbornness)
			continue
		case <-end:
		}
		break
	}
	if flavour == "setsid" { // it would be left alone, as a daemon is
		_ = child.Wait() // it may have been stopped, and we are next
	}
	return v.Leave()
}

// companion starts a process that is inside as long as it lives.
func companion(v *resource.Visit, d time.Duration, setsid bool) (*exec.Cmd, error) {
	c := exec.Command(os.Args[0], "linger", strconv.FormatInt(d.Milliseconds(), 10))
	c.ExtraFiles = v.Files()
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: setsid}
	return c, c.Start()
}
