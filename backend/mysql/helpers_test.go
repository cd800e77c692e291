package mysql

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/mysqltest"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/renew"
)

// use opens a service until the test ends.
func use(t testing.TB, address string) *Backend {
	t.Helper()
	b := open(t, address, "dlock")
	t.Cleanup(func() { b.Close() })
	return b
}

// through is the URL of a server that is reached elsewhere.
func through(addr, options string) string {
	return "mysql://" + mysqltest.User + ":" + mysqltest.EscapedPassword + "@" + addr + "/d?" + options
}

// leaseOf is a wish for a lease of that length.
func leaseOf(name string, mode backend.Mode, ttl time.Duration) backend.Request {
	r := backendtest.Request(name, mode)
	r.TTL = ttl
	return r
}

// exclusive is a wish as a run has it.
func exclusive(name string) backend.Request { return backendtest.Request(name, backendtest.Exclusive) }

// kept is a hold with a keeper, as a run has it.
type kept struct {
	*renew.Keeper
	hold   backend.Hold
	failed atomic.Int32 // rows of failures
	last   atomic.Value // the last of them
}

// keep takes a lock and keeps it.
func keep(t *testing.T, b backend.Backend, req backend.Request) *kept {
	t.Helper()
	k := &kept{hold: backendtest.MustAcquire(t, b, req)}
	k.Keeper = renew.Keep(k.hold, k.hold.Grant().Lease, renew.Config{Grace: 5 * time.Second, Lost: k.hold.Lost(), OnError: func(err error) {
		if err != nil {
			k.last.Store(err.Error())
			k.failed.Add(1)
		}
	}})
	t.Cleanup(func() { k.Stop() })
	return k
}

// fails waits for a failure.
func (k *kept) fails(t *testing.T) {
	t.Helper()
	backendtest.Eventually(t, "a renewal fails", func() bool {
		k.isKept(t)
		return k.failed.Load() > 0
	})
}

// renews waits for a renewal that was asked for from now on.
func (k *kept) renews(t *testing.T) {
	t.Helper()
	now := boottime.Now()
	backendtest.Eventually(t, "a renewal", func() bool {
		k.isKept(t)
		return k.Lease().Sent > now
	})
}

func (k *kept) isKept(t *testing.T) {
	t.Helper()
	select {
	case loss := <-k.Lost():
		t.Fatalf("lost: %v", loss.Err)
	default:
	}
}

// loss waits until the hold is lost.
func (k *kept) loss(t *testing.T) renew.Loss {
	t.Helper()
	return backendtest.Receive(t, k.Lost(), "the loss")
}

// release gives it back.
func (k *kept) release(t *testing.T) {
	t.Helper()
	k.Stop()
	k.isKept(t)
	backendtest.MustRelease(t, k.hold)
}

// holderOf is the server's number of the connection that has the gate of a token.
func holderOf(c *mysqltest.Conn, token string) string {
	return c.One("SELECT IS_USED_LOCK('" + gate(token) + "')")
}

// meter passes connections on and counts flights: writes of a client that follow
// something that the server has said.
type meter struct {
	flights  atomic.Int64
	listener net.Listener
	// patch may change what the server says first.
	patch func(greeting []byte)
}

func newMeter(t testing.TB, upstream string) *meter {
	t.Helper()
	return newPatchingMeter(t, upstream, nil)
}

// newPatchingMeter starts a meter with a patch.
func newPatchingMeter(t testing.TB, upstream string, patch func(greeting []byte)) *meter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	m := &meter{listener: l, patch: patch}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", upstream)
			if err != nil {
				client.Close()
				continue
			}
			m.pass(client, server)
		}
	}()
	return m
}

func (m *meter) addr() string { return m.listener.Addr().String() }

func (m *meter) pass(client, server net.Conn) {
	var mu sync.Mutex
	heard := false
	relay := func(from, to net.Conn, see func([]byte)) {
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			see(buf[:n])
			if _, writeErr := to.Write(buf[:n]); err != nil || writeErr != nil {
				from.Close()
				to.Close()
				return
			}
		}
	}
	go relay(client, server, func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		if heard && len(b) > 0 && !bytes.Equal(b, quit) {
			m.flights.Add(1)
		}
		heard = heard && len(b) == 0
	})
	first := true
	go relay(server, client, func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		if first && m.patch != nil {
			m.patch(b)
		}
		first, heard = false, true
	})
}

// quit is COM_QUIT, which nobody waits for.
var quit = []byte{1, 0, 0, 0, 1}
