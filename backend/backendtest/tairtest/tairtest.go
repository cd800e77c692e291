// Package tairtest imitates a Tair, since none can be installed for tests. It is the only
// imitation of a server in dlock's tests.
package tairtest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/dlock/dlock/backend/backendtest/redistest"
)

// Fake is a Tair as far as tests need one: a real redis-server, before which CAS and CAD
// are answered as the vendor's reference has them
// (https://www.alibabacloud.com/help/en/redis/developer-reference/cas-cad-command): 1 for
// done, 0 for another value, -1 for no key; and CAS without a time takes the key's own away.
// All other commands are the server's.
type Fake struct {
	*redistest.Server
	addr string

	mu   sync.Mutex
	sent []string // commands as they came, byte by byte
}

const fakeCAS = `local v = redis.call('get', KEYS[1])
if not v then return -1 end
if v ~= ARGV[1] then return 0 end
redis.call('set', KEYS[1], unpack(ARGV, 2))
return 1`

const fakeCAD = `local v = redis.call('get', KEYS[1])
if not v then return -1 end
if v ~= ARGV[1] then return 0 end
return redis.call('del', KEYS[1])`

// Start starts one that ends with the test; args are the redis-server's.
func Start(t testing.TB, args ...string) *Fake {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &Fake{Server: redistest.Start(t, args...), addr: l.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { f.serve(t, client) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	return f
}

// Addr is host:port, for clients.
func (f *Fake) Addr() string { return f.addr }

// serve passes commands on, and replies back as they are: each command has one.
func (f *Fake) serve(t testing.TB, client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", f.Server.Addr())
	if err != nil {
		t.Error(err)
		return
	}
	go func() {
		_, _ = io.Copy(client, server)
		client.Close()
	}()
	defer server.Close()
	for in := bufio.NewReader(client); ; {
		raw, words, err := ReadCommand(in)
		if err != nil {
			return // the client has gone
		}
		f.mu.Lock()
		f.sent = append(f.sent, raw)
		f.mu.Unlock()
		switch words[0] {
		case "CAS":
			raw = Command(append([]string{"EVAL", fakeCAS, "1"}, words[1:]...)...)
		case "CAD":
			raw = Command(append([]string{"EVAL", fakeCAD, "1"}, words[1:]...)...)
		}
		if _, err := io.WriteString(server, raw); err != nil {
			return
		}
	}
}

// ReadCommand reads one command, an array of bulk strings.
func ReadCommand(in *bufio.Reader) (raw string, words []string, err error) {
	var all bytes.Buffer
	line := func(kind byte) (int, error) {
		text, err := in.ReadString('\n')
		if err != nil || len(text) < 3 || text[0] != kind {
			return 0, fmt.Errorf("%q: %w", text, err)
		}
		all.WriteString(text)
		return strconv.Atoi(strings.TrimSuffix(text[1:], "\r\n"))
	}
	n, err := line('*')
	for range n {
		size, err := line('$')
		if err != nil {
			return "", nil, err
		}
		word := make([]byte, size+2)
		if _, err := io.ReadFull(in, word); err != nil {
			return "", nil, err
		}
		all.Write(word)
		words = append(words, string(word[:size]))
	}
	return all.String(), words, err
}

// Command is one command as it stands on the wire.
func Command(words ...string) string {
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, w := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(w), w)
	}
	return text
}

// Commands are what was sent since the last call, without the connection's HELLO.
func (f *Fake) Commands() (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, raw := range f.sent {
		if !strings.HasPrefix(raw, "*2\r\n$5\r\nhello\r\n") {
			list = append(list, raw)
		}
	}
	f.sent = nil
	return list
}
