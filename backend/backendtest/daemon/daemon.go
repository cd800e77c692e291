// Package daemon starts servers for tests, and sees to it that they end with the
// test, also when the test binary is killed.
package daemon

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// Daemon is a process that a test has started.
type Daemon struct {
	process *os.Process
	log     string
	exited  chan struct{}
}

// Start starts a program whose output goes to the file named log.
func Start(t testing.TB, log, program string, args ...string) *Daemon {
	t.Helper()
	// A file, not a buffer: nothing needs to read for as long as the program lives.
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = filepath.Dir(log), out, out
	if err := start(cmd); err != nil {
		t.Fatalf("start %s: %v", program, err)
	}
	d := &Daemon{cmd.Process, log, make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended says nothing: tests kill it
		close(d.exited)
	}()
	t.Cleanup(d.Kill)
	return d
}

// PID is the process's number.
func (d *Daemon) PID() int { return d.process.Pid }

// Exited is closed when the process has ended.
func (d *Daemon) Exited() <-chan struct{} { return d.exited }

// Kill ends the process with SIGKILL, and returns when it is gone.
func (d *Daemon) Kill() {
	d.signal(syscall.SIGKILL)
	<-d.exited
}

// Stop freezes the process: its connections stay open and nothing answers.
func (d *Daemon) Stop() { d.signal(syscall.SIGSTOP) }

// Cont lets a frozen process go on.
func (d *Daemon) Cont() { d.signal(syscall.SIGCONT) }

func (d *Daemon) signal(s os.Signal) { _ = d.process.Signal(s) } // fails only for a dead one

// Log is what the process has written so far.
func (d *Daemon) Log() string {
	text, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Find returns the path of a program, or fails the test naming the command that
// installs it.
func Find(t testing.TB, program, install string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v; to install it: %s", err, install)
	}
	return path
}

// Dir makes a directory that is removed after the test. Its path is short, as unix
// sockets need it.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dlock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Free ports are looked for below those that the kernel gives to clients: one that
// dials the port of a dead server could get that very port as its own, be connected
// to itself, and keep the server from coming back. There is room for second ports
// 10000 higher, such as a Redis cluster's bus.
const firstPort, lastPort = 12000, 22000

// FreePort finds a loopback port that nobody listens on, nor on those at the
// distances given. Until the test ends no other test on this machine gets it, also while
// its server is dead, or its relay refuses.
func FreePort(t testing.TB, distances ...int) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if reserve(t, port) && isFree(port, distances) {
			return port
		}
	}
	t.Fatal("no free port")
	panic("unreachable")
}

// reserve takes a name that only one process can have, and that ends with it.
func reserve(t testing.TB, port int) bool {
	if runtime.GOOS != "linux" { // where such names are files, which stay
		return true
	}
	l, err := net.Listen("unix", fmt.Sprintf("@dlock-test-port-%d", port))
	if err != nil {
		return false
	}
	t.Cleanup(func() { l.Close() })
	return true
}

func isFree(port int, distances []int) bool {
	for _, distance := range append([]int{0}, distances...) {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+distance))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}
