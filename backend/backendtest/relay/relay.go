// Package relay stands between clients and a server in tests, and does to their
// connections what networks do. It is the library of toxiproxy.
package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/dlock/dlock/backend/backendtest/daemon"
)

// Relay passes connections on to one server until it is told to do something else.
// What it was told last counts, for the connections that there are and for new ones.
type Relay struct {
	t              testing.TB
	addr, upstream string
	proxy          *toxiproxy.Proxy
}

// silence keeps toxiproxy's log off stderr.
var silence = sync.OnceFunc(func() { zerolog.SetGlobalLevel(zerolog.Disabled) })

// New starts a relay to upstream, host:port, that ends with the test.
func New(t testing.TB, upstream string) *Relay {
	t.Helper()
	silence()
	for range 10 {
		// Not any port: see daemon.FreePort about those of clients.
		r := &Relay{t: t, addr: fmt.Sprintf("127.0.0.1:%d", daemon.FreePort(t)), upstream: upstream}
		r.proxy = r.newProxy()
		if r.proxy.Start() == nil {
			t.Cleanup(r.Refuse)
			return r
		}
	}
	t.Fatal("relay: each port was taken before it could be used")
	panic("unreachable")
}

func (r *Relay) newProxy() *toxiproxy.Proxy {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	return toxiproxy.NewProxy(server, "relay", r.addr, r.upstream)
}

// Addr is host:port, for clients.
func (r *Relay) Addr() string { return r.addr }

// Pass ends whatever was going on. What was held is delivered, those who talked into a
// hole are cut off.
func (r *Relay) Pass() {
	r.t.Helper()
	r.proxy.Toxics.ResetToxics(context.Background())
	err := r.proxy.Start()
	// A process that was being started when the port was closed still has it open, until
	// it runs its program.
	for end := time.Now().Add(patience); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end); err = r.proxy.Start() {
		time.Sleep(time.Millisecond)
	}
	if err != nil && !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
		r.t.Errorf("relay: %v", err)
	}
}

// patience is how long a port that was closed may stay taken.
const patience = 10 * time.Second

// Hole lets connections stay open, and new ones be made, but swallows all that is sent.
func (r *Relay) Hole() {
	r.do(toxic(up, "timeout", "timeout", 0), toxic(down, "timeout", "timeout", 0))
}

// Cut ends all connections; new ones pass. What was held is gone.
func (r *Relay) Cut() {
	r.t.Helper()
	r.Refuse()
	r.Pass()
}

// Refuse ends all connections and accepts none. What was held is gone.
func (r *Relay) Refuse() {
	r.proxy.Stop()
	r.proxy = r.newProxy() // the old one would still try to deliver what it holds
}

// Delay makes each way take that long.
func (r *Relay) Delay(d time.Duration) { r.latency(d, up, down) }

// Slow lets that many kilobytes through in a second, each way.
func (r *Relay) Slow(rate int) {
	r.do(toxic(up, "bandwidth", "rate", int64(rate)), toxic(down, "bandwidth", "rate", int64(rate)))
}

// HoldRequests keeps what clients send until Pass, also when they have gone by then.
func (r *Relay) HoldRequests() { r.latency(held, up) }

// HoldReplies keeps what the server sends until Pass.
func (r *Relay) HoldReplies() { r.latency(held, down) }

// held is longer than any test.
const held = time.Hour

const up, down = "upstream", "downstream"

func (r *Relay) latency(d time.Duration, ways ...string) {
	var toxics []string
	for _, way := range ways {
		toxics = append(toxics, toxic(way, "latency", "latency", d.Milliseconds()))
	}
	r.do(toxics...)
}

// toxic is what toxiproxy calls a fault, in one direction and with one setting.
func toxic(way, kind, setting string, n int64) string {
	return fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": {%q: %d}}`, kind, way, setting, n)
}

func (r *Relay) do(toxics ...string) {
	r.t.Helper()
	r.Pass()
	for _, text := range toxics {
		if _, err := r.proxy.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
			r.t.Errorf("relay: %v", err)
		}
	}
}
