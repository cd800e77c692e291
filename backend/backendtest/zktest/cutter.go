package zktest

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Cutter stands between a client and a server, and loses one answer: it ends the
// connection in place of passing on what the server says after the nth request.
type Cutter struct {
	addr     string
	requests atomic.Int64
	nth      int64
	cuts     atomic.Int64
}

// NewCutter starts one that ends with the test.
func NewCutter(t testing.TB, upstream string, nth int) *Cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cutter{addr: l.Addr().String(), nth: int64(nth)}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.pass(client, upstream) })
		}
	})
	return c
}

// URL is zk://host:port.
func (c *Cutter) URL() string { return "zk://" + c.addr }

// Cuts counts the answers that were lost.
func (c *Cutter) Cuts() int { return int(c.cuts.Load()) }

// pass passes on what client and server say, until one of them is gone.
func (c *Cutter) pass(client net.Conn, upstream string) {
	defer client.Close()
	server, err := net.Dial("tcp", upstream)
	if err != nil {
		return
	}
	defer server.Close()
	var lose atomic.Bool // the next answer
	go func() {
		defer server.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := client.Read(buf)
			if err != nil {
				return
			}
			if !isPing(buf[:n]) && c.requests.Add(1) == c.nth {
				lose.Store(true)
			}
			if _, err := server.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if lose.Load() && err == nil {
			c.cuts.Add(1)
			return
		}
		if _, werr := client.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// isPing tells whether a client's frame is a ping.
func isPing(frame []byte) bool {
	return len(frame) == 12 && bytes.Equal(frame[4:8], []byte{0xFF, 0xFF, 0xFF, 0xFE})
}
