package consul_test

import (
	"net/url"
	"strconv"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/consultest"
	"github.com/dlock/dlock/backend/consul"
)

// open opens the service of a URL.
func open(t testing.TB, address, namespace string) *consul.Backend {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	opts, err := consul.ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	opts.Namespace = namespace
	return consul.New(opts)
}

func TestConformance(t *testing.T) {
	for what, namespace := range map[string]string{"with a namespace": "dlock", "right below the prefix": ""} {
		t.Run(what, func(t *testing.T) {
			server, n := consultest.Start(t), 0
			backendtest.Run(t, namespace, func(t *testing.T) backendtest.Service {
				n++
				address := server.URL() + "/test/" + strconv.Itoa(n)
				return backendtest.Service{Dial: func(namespace string) backend.Backend { return open(t, address, namespace) }}
			})
		})
	}
}
