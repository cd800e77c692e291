package relay

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// Way is a direction through a relay.
type Way bool

// The two ways: what clients say, and what the server says.
const (
	Requests Way = false
	Replies  Way = true
)

// Rewrite starts a relay to upstream, host:port, that puts other words of the same length
// into what goes one way, and returns its address. Words that come in two pieces pass as
// they are. It ends with the test.
func Rewrite(t testing.TB, upstream string, way Way, from, to string) string {
	t.Helper()
	if len(from) != len(to) {
		t.Fatalf("%q and %q are not of the same length", from, to)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
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
			requests, replies := io.Writer(server), io.Writer(client)
			if way == Requests {
				requests = &rewriter{server, []byte(from), []byte(to)}
			} else {
				replies = &rewriter{client, []byte(from), []byte(to)}
			}
			go pass(requests, client, server)
			go pass(replies, server, client)
		}
	}()
	return l.Addr().String()
}

// pass ends the other connection when this one ends.
func pass(to io.Writer, from, other net.Conn) {
	defer other.Close()
	_, _ = io.Copy(to, from)
}

type rewriter struct {
	to        io.Writer
	from, put []byte
}

func (r *rewriter) Write(b []byte) (int, error) {
	return r.to.Write(bytes.ReplaceAll(b, r.from, r.put))
}
