package proc

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestParseStatWithBracketsInTheName(t *testing.T) {
	stat := "42 (a) Z (b c) S 7 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987 1 1"
	got, err := parseStat(42, []byte(stat))
	want := Process{PID: 42, PPID: 7, PGID: 42, Start: 987}
	if err != nil || got != want {
		t.Errorf("parseStat = %+v, %v; want %+v", got, err, want)
	}
}

// TestLivingThreadsAreNoZombie: a process whose first thread has ended lives as long as
// any other does. This binary, run again, is one.
func TestLivingThreadsAreNoZombie(t *testing.T) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "PROC_TEST_HEADLESS=1")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	status := func() string {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
		return string(text)
	}
	for limit := time.Now().Add(20 * time.Second); !strings.Contains(status(), ") Z "); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("its first thread does not end: %s", status())
		}
	}
	if p, err := Get(c.Process.Pid); err != nil || p.Zombie {
		t.Errorf("%+v, %v: want no zombie", p, err)
	}
	in.Close() // it ends
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

func init() {
	if os.Getenv("PROC_TEST_HEADLESS") == "" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	time.Sleep(50 * time.Millisecond) // until it has a thread of its own
	runtime.LockOSThread()            // during init, this is the first one
	_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
}

func TestParseStatRefusesNoise(t *testing.T) {
	for _, stat := range []string{"", "42", "42 (x)", "42 (x) S 1 2", "42 (x) S a b 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"} {
		if _, err := parseStat(42, []byte(stat)); err == nil {
			t.Errorf("parseStat(%q) gave no error", stat)
		}
	}
}

func TestListShowsThisProcess(t *testing.T) {
	list, err := List()
	if err != nil {
		t.Fatal(err)
	}
	self, err := Get(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(list, self) {
		t.Errorf("List lacks %+v", self)
	}
	if self.PPID != os.Getppid() {
		t.Errorf("PPID = %d, want %d", self.PPID, os.Getppid())
	}
}

func TestDescendants(t *testing.T) {
	list := []Process{{PID: 2, PPID: 1}, {PID: 3, PPID: 2}, {PID: 4, PPID: 3}, {PID: 5, PPID: 1}, {PID: 6, PPID: 9}}
	var got []int
	for _, p := range Descendants(list, 1, func(p Process) bool { return p.PID == 3 }) {
		got = append(got, p.PID)
	}
	slices.Sort(got)
	if want := []int{2, 3, 5}; !slices.Equal(got, want) {
		t.Errorf("Descendants = %v, want %v", got, want)
	}
}
