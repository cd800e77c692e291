package redlock

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest/redistest"
)

// TestCheck trips each check with servers that are set up for it.
func TestCheck(t *testing.T) {
	sound := func() *redistest.Server { return redistest.Start(t, "--appendonly", "yes") }
	servers := []*redistest.Server{sound(), sound(), redistest.Start(t, "--maxmemory-policy", "allkeys-lru"), sound()}
	check := func(part string, level backend.Level, name string, servers ...*redistest.Server) {
		t.Helper()
		var addrs []string
		for _, s := range servers {
			addrs = append(addrs, s.Addr())
		}
		b := open(t, addrs, "", "dlock")
		defer b.Close()
		for _, c := range b.Check(t.Context(), 30*time.Second) {
			if c.Name == name && c.Level == level && strings.Contains(c.Text, part) {
				return
			}
		}
		t.Errorf("no %s of %s with %q in %+v", level, name, part, b.Check(t.Context(), 30*time.Second))
	}
	check("3, of which 1 may fail", backend.OK, "servers", servers[:3]...)
	check("allkeys-lru", backend.Warn, "eviction", servers[:3]...)
	check("appendonly is off", backend.Warn, "persistence", servers[:3]...)
	check("4 stand no more losses than 3", backend.Warn, "servers", servers...)
	servers[0].Kill()
	check("1 of 3 do not answer", backend.Warn, "servers", servers[:3]...)
	servers[1].Stop()
	check("2 of 3 do not answer", backend.Fail, "servers", servers[:3]...)
}
