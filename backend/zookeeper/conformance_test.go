package zookeeper_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/zktest"
	"github.com/dlock/dlock/backend/zookeeper"
)

// open opens the service of a URL, whose hosts may be several.
func open(t testing.TB, address, namespace string) *zookeeper.Backend {
	t.Helper()
	return zookeeper.New(options(t, address, namespace))
}

func options(t testing.TB, address, namespace string) zookeeper.Options {
	t.Helper()
	scheme, rest, _ := strings.Cut(address, "://")
	hosts, tail, _ := strings.Cut(rest, "/") // net/url takes several for one with a strange port
	user := ""
	if i := strings.LastIndexByte(hosts, '@'); i >= 0 {
		user, hosts = hosts[:i+1], hosts[i+1:]
	}
	u, err := url.Parse(scheme + "://" + user + "hosts/" + tail)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = hosts
	opts, err := zookeeper.ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	opts.Namespace = namespace
	return opts
}

func TestConformance(t *testing.T) {
	server := zktest.Start(t)
	n := 0
	for _, tt := range []struct{ name, namespace, query string }{
		{"with a namespace", "dlock", ""},
		{"with plain names", "", ""},
		{"with Curator's read-write locks", "", "?recipe=rwlock"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			backendtest.Run(t, tt.namespace, func(t *testing.T) backendtest.Service {
				n++
				address := fmt.Sprintf("%s/run/%d%s", server.URL(), n, tt.query)
				return backendtest.Service{Dial: func(namespace string) backend.Backend { return open(t, address, namespace) }}
			})
		})
	}
}

// openWarning opens the service of a URL with somebody who listens to its warnings, and
// closes it after the test.
func openWarning(t testing.TB, address string, warn func(string)) *zookeeper.Backend {
	t.Helper()
	opts := options(t, address, "")
	opts.Warn = warn
	b := zookeeper.New(opts)
	t.Cleanup(func() { b.Close() })
	return b
}
