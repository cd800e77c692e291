package consul_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/consul"
)

func parse(t *testing.T, raw string) (consul.Options, error) {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return consul.ParseURL(u)
}

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]struct{ address, scheme, token, prefix, shown string }{
		"consul://c":                             {"c:8500", "", "", "", "consul://c:8500"},
		"consul://c:1/a/b/":                      {"c:1", "", "", "a/b", "consul://c:1/a/b"},
		"consul://:hunter2@c/a":                  {"c:8500", "", "hunter2", "a", "consul://c:8500/a"},
		"consuls://:hunter%3F2@c:8501?ca=x":      {"c:8501", "https", "hunter?2", "", "consuls://c:8501"},
		"consul://[::1]/a?dc=x&ns=y":             {"[::1]:8500", "", "", "a", "consul://[::1]:8500/a"},
		"consul://u:hunter2@c/a?partition=x":     {"c:8500", "", "", "a", "consul://c:8500/a"},
		"consul://c/a%20b?token-file=/x/y":       {"c:8500", "", "", "a b", "consul://c:8500/a%20b"},
		"consuls://c?cert=x&key=y&server-name=z": {"c:8500", "https", "", "", "consuls://c:8500"},
	} {
		o, err := parse(t, raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if c := o.Config; c.Address != want.address || c.Scheme != want.scheme || c.Token != want.token || o.Prefix != want.prefix {
			t.Errorf("%s: %+v, want %+v", raw, o, want)
		}
		if shown := consul.New(o).Limits().Address; shown != want.shown {
			t.Errorf("%s is shown as %s, want %s", raw, shown, want.shown)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	for _, raw := range []string{
		"consul://hunter2@c", "consul://:hunter2@c,d", "consul://:hunter2@c/a//b", "consul://:hunter2@c/../b", "consul://:hunter2@c/a.dlock",
		"consul://:hunter2@c/a.dlock/b", "consul://:hunter2@c?x=1", "consul://:hunter2@c?dc=", "consul://:hunter2@c?dc=1&dc=2", "consul://:hunter2@c#x",
		"consul://:hunter2@c?token-file=x", "consul://:hunter2@c?ca=x", "consuls://:hunter2@c?cert=x", "consul://c?x:hunter2@y=1", "consul:hunter2",
	} {
		_, err := parse(t, raw)
		if !errors.Is(err, backend.ErrInvalid) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want invalid, and nothing of the token", raw, err)
		}
	}
}

// TestEnvironment: Consul's own variables count where the URL says nothing.
func TestEnvironment(t *testing.T) {
	t.Setenv("CONSUL_HTTP_ADDR", "https://user:hunter2@c:1")
	o, err := parse(t, "consul:///a")
	if err != nil {
		t.Fatal(err)
	}
	if shown := consul.New(o).Limits().Address; shown != "consul://c:1/a" {
		t.Errorf("shown as %s", shown)
	}
}
