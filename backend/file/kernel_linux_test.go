package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend/backendtest"
)

func TestParseKernelLocks(t *testing.T) {
	const text = `1: FLOCK  ADVISORY  WRITE 4242 08:01:131099 0 EOF
1: -> FLOCK  ADVISORY  WRITE 4243 08:01:131099 0 EOF
1:  -> FLOCK  ADVISORY  READ 4244 08:01:131099 0 EOF
2: POSIX  ADVISORY  WRITE 77 08:01:131099 0 EOF
3: OFDLCK ADVISORY  READ  -1 00:05:11 0 EOF
4: FLOCK  ADVISORY  READ -1 fe:0a:7 0 EOF
5: FLOCK  ADVISORY  READ
6: FLOCK  ADVISORY  READ x fe:0a:7 0 EOF
7: FLOCK  ADVISORY  READ 5 fe:0a 0 EOF
8: FLOCK  ADVISORY  READ 5 zz:0a:7 0 EOF
9: LEASE  ACTIVE    WRITE 5 fe:0a:7 0 EOF

->
8: ->
`
	want := kernelLocks{
		{8, 1, 131099}:  {{pid: 4242}, {pid: 4243, waiting: true}, {pid: 4244, shared: true, waiting: true}},
		{0xfe, 0x0a, 7}: {{pid: -1, shared: true}},
	}
	if got := parseKernelLocks(text); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func FuzzParseKernelLocks(f *testing.F) {
	f.Add("1: FLOCK  ADVISORY  WRITE 4242 08:01:131099 0 EOF\n1: -> FLOCK  ADVISORY  READ 4243 08:01:131099 0 EOF\n")
	f.Add("->\n: ->\n1: -> FLOCK")
	f.Fuzz(func(t *testing.T, text string) { parseKernelLocks(text) })
}

func TestCancelledFlockLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	held, wanted := open(), open()
	if err := flock(held, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	goroutines, threads := 0, 0
	for round := range 300 {
		if round == 10 { // what is started once and stays is there
			goroutines, threads = runtime.NumGoroutine(), countThreads(t)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Duration(round%7)*100*time.Microsecond, func() { cancel(cause) })
		if err := flockContext(ctx, wanted, unix.LOCK_EX); !errors.Is(err, cause) {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	backendtest.Eventually(t, "no goroutine is left over", func() bool { return runtime.NumGoroutine() <= goroutines })
	if n := countThreads(t); n > threads+20 {
		t.Errorf("%d threads, at first %d", n, threads)
	}
	unlock(held)
	if err := flock(open(), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("a cancelled wait holds the lock: %v", err)
	}
}

func countThreads(t *testing.T) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

func TestWonFlockIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := flockContext(t.Context(), f, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	other, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := flock(other, unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, errWouldBlock) {
		t.Errorf("the lock is not held: %v", err)
	}
}
