// Package daemon starts servers for tests, and sees to it that they end with the
// test, also when the test binary is killed.
package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
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
