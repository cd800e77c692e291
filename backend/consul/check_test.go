package consul_test

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest/consultest"
)

// TestCheck trips each check with a server that is set up for it.
func TestCheck(t *testing.T) {
	secured := consultest.StartSecured(t, "5d2ac6a8-0000-4000-8000-000000000000")
	three := consultest.Cluster(t)
	for _, c := range []struct {
		name, url string
		ttl       time.Duration
		check     string
		level     backend.Level
		part      string
	}{
		{"three servers", three[0].URL(), 30 * time.Second, "servers", backend.OK, "3, and"},
		{"one server", consultest.Start(t).URL(), 30 * time.Second, "servers", backend.Warn, "one server"},
		{"short TTL", consultest.Start(t, `session_ttl_min = "20s"`).URL(), 10 * time.Second, "session", backend.Warn, "raised to session_ttl_min, 20s"},
		{"long TTL", three[1].URL(), 30 * time.Second, "session", backend.OK, "is granted"},
		{"no ACLs", three[2].URL(), 30 * time.Second, "acl", backend.Warn, "disabled"},
		{"ACLs", strings.Replace(secured.URL(), "//", "//:5d2ac6a8-0000-4000-8000-000000000000@", 1), 30 * time.Second, "acl", backend.OK, "enabled"},
		{"no rights", secured.URL(), 30 * time.Second, "agent", backend.Warn, "cannot be seen"},
		{"nobody there", "consul://127.0.0.1:1", 30 * time.Second, "servers", backend.Fail, "refused"},
		{"few connections", consultest.Start(t, `limits { http_max_conns_per_client = 50 }`).URL(), 30 * time.Second, "connections", backend.Warn, "50 from one address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := open(t, c.url, "dlock")
			t.Cleanup(func() { b.Close() })
			for _, found := range b.Check(t.Context(), c.ttl) {
				if found.Name == c.check {
					if found.Level != c.level || !strings.Contains(found.Text, c.part) {
						t.Errorf("%+v, want %s: …%s…", found, c.level, c.part)
					}
					return
				}
			}
			t.Errorf("no check %q", c.check)
		})
	}
}
