package mysqltest

import (
	_ "embed"
	"encoding/binary"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dlock/dlock/backend/backendtest/daemon"
)

//go:embed clock.c.txt
var clockSource []byte

// Clock is the wall clock of one server, which can be set.
type Clock struct {
	t    testing.TB
	file string
}

// StartWithClock starts a server whose wall clock is that of the Clock.
func StartWithClock(t testing.TB, args ...string) (*Server, *Clock) {
	t.Helper()
	d := daemon.Dir(t)
	c := &Clock{t: t, file: d + "/offset"}
	c.Set(0)
	if err := os.WriteFile(d+"/clock.c", clockSource, 0o600); err != nil {
		t.Fatal(err)
	}
	gcc := daemon.Find(t, "gcc", "apt-get install gcc")
	if out, err := exec.Command(gcc, "-O1", "-shared", "-fPIC", "-o", d+"/clock.so", d+"/clock.c", "-ldl", "-lpthread").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return start(t, []string{"LD_PRELOAD=" + d + "/clock.so", "CLOCK_OFFSET=" + c.file}, args), c
}

// Set puts the clock that far ahead of the true time, or behind it.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	f, err := os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead.Nanoseconds())), 0)
		f.Close()
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
