package daemon

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed clock.c.txt
var clockSource []byte

// Clock is a wall clock that can be set, for the programs started Under it.
type Clock struct {
	t   testing.TB
	dir string
}

// NewClock makes a clock that shows the true time.
func NewClock(t testing.TB) *Clock {
	t.Helper()
	c := &Clock{t, Dir(t)}
	c.Set(0)
	if err := os.WriteFile(c.file("clock.c"), clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	gcc := Find(t, "gcc", "apt-get install gcc")
	if out, err := exec.Command(gcc, "-O1", "-shared", "-fPIC", "-o", c.file("clock.so"), c.file("clock.c"), "-ldl", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return c
}

// Under returns the command that runs a program by this clock.
func (c *Clock) Under(program string, args []string) (string, []string) {
	c.t.Helper()
	env := []string{"LD_PRELOAD=" + c.file("clock.so"), "CLOCK_OFFSET=" + c.file("offset"), program}
	return Find(c.t, "env", "apt-get install coreutils"), append(env, args...)
}

// Set puts the clock that far ahead of the true time, or behind it.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	f, err := os.OpenFile(c.file("offset"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead.Nanoseconds())), 0)
		f.Close()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *Clock) file(name string) string { return filepath.Join(c.dir, name) }
