package relay_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/relay"
)

// echo is a server that sends back each line, and tells what it got.
func echo(t *testing.T) (addr string, got chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	got = make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c, got)
		}
	}()
	return l.Addr().String(), got
}

func serve(c net.Conn, got chan<- string) {
	defer c.Close()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		got <- lines.Text()
		if _, err := io.WriteString(c, lines.Text()+"\n"); err != nil {
			return
		}
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func say(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text+"\n"); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, c net.Conn, want string) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(backendtest.Patience))
	if got, err := bufio.NewReader(c).ReadString('\n'); got != want+"\n" {
		t.Fatalf("heard %q (%v), want %q", got, err, want)
	}
}

// hearNothing shows that a connection is open, and silent for a moment.
func hearNothing(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %d bytes, %v; want nothing", n, err)
	}
}

// hearEnd shows that a connection was ended by the other side.
func hearEnd(t *testing.T, c net.Conn) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(backendtest.Patience))
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("heard %d bytes, %v; want the end", n, err)
	}
}

func TestHoleSwallowsOnOldAndNewConnections(t *testing.T) {
	addr, got := echo(t)
	r := relay.New(t, addr)
	old := dial(t, r.Addr())
	say(t, old, "a")
	hear(t, old, "a")
	r.Hole()
	fresh := dial(t, r.Addr())
	for _, c := range []net.Conn{old, fresh} {
		say(t, c, "lost")
		hearNothing(t, c)
	}
	r.Pass()
	hearEnd(t, old)
	c := dial(t, r.Addr())
	say(t, c, "b")
	hear(t, c, "b")
	if first, second := <-got, <-got; first != "a" || second != "b" {
		t.Errorf("the server got %q and %q, want a and b", first, second)
	}
}

func TestCutAndRefuse(t *testing.T) {
	addr, _ := echo(t)
	r := relay.New(t, addr)
	for range 3 {
		c := dial(t, r.Addr())
		say(t, c, "a")
		hear(t, c, "a")
		r.Cut()
		hearEnd(t, c)
	}
	r.Refuse()
	if c, err := net.Dial("tcp", r.Addr()); err == nil {
		c.Close()
		t.Error("a relay that refuses was dialled")
	}
	r.Pass()
	c := dial(t, r.Addr())
	say(t, c, "b")
	hear(t, c, "b")
}

func TestHeldRequestsArriveLate(t *testing.T) {
	addr, got := echo(t)
	r := relay.New(t, addr)
	stays, goes := dial(t, r.Addr()), dial(t, r.Addr())
	r.HoldRequests()
	say(t, goes, "a")
	goes.Close()
	say(t, stays, "b")
	hearNothing(t, stays)
	if len(got) > 0 {
		t.Fatalf("the server got %q", <-got)
	}
	r.Pass()
	hear(t, stays, "b")
	both := backendtest.Receive(t, got, "a request") + backendtest.Receive(t, got, "a request")
	if both != "ab" && both != "ba" {
		t.Errorf("the server got %q", both)
	}
}

func TestHeldRepliesArriveLate(t *testing.T) {
	addr, got := echo(t)
	r := relay.New(t, addr)
	c := dial(t, r.Addr())
	r.HoldReplies()
	say(t, c, "a")
	backendtest.Receive(t, got, "the request")
	hearNothing(t, c)
	r.Pass()
	hear(t, c, "a")
}

func TestDelayAndSlow(t *testing.T) {
	addr, _ := echo(t)
	r := relay.New(t, addr)
	c := dial(t, r.Addr())
	for _, slow := range []func(){func() { r.Delay(100 * time.Millisecond) }, func() { r.Slow(1) }} {
		slow()
		start, text := time.Now(), string(make([]byte, 150))
		say(t, c, text)
		hear(t, c, text)
		if took := time.Since(start); took < 150*time.Millisecond {
			t.Errorf("a turn took %v", took)
		}
	}
}
