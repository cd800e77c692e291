package daemon

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Free ports are looked for below those that the kernel gives to clients: one that
// dials the port of a dead server could get that very port as its own, be connected
// to itself, and keep the server from coming back. There is room for second ports
// 10000 higher, such as a Redis cluster's bus.
const firstPort, lastPort = 12000, 22000

// FreePort finds a loopback port that nobody listens on, nor on those at the
// distances given. They are the test's until it ends, also while nobody listens there:
// servers are restarted, and the tests of other packages run at the same time.
func FreePort(t testing.TB, distances ...int) int {
	t.Helper()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if reserve(t, port, append([]int{0}, distances...)) {
			return port
		}
	}
	t.Fatal("no free port")
	panic("unreachable")
}

// reserve keeps a port, and those at distances from it, until the test ends.
func reserve(t testing.TB, port int, distances []int) bool {
	var files []*os.File
	free := true
	for _, distance := range distances {
		f := lockPort(t, port+distance)
		if f != nil {
			files = append(files, f)
		}
		free = free && f != nil && canListen(port+distance)
	}
	release := func() {
		for _, f := range files {
			f.Close()
		}
	}
	if free {
		t.Cleanup(release)
	} else {
		release()
	}
	return free
}

// lockPort locks the file that stands for a port among the tests of this user; nil if
// somebody else has it.
func lockPort(t testing.TB, port int) *os.File {
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("dlock-test-ports-%d", os.Getuid()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		f.Close()
		return nil
	}
	return f
}

func canListen(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		l.Close()
	}
	return err == nil
}
