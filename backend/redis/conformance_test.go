package redis_test

import (
	"net/url"
	"strconv"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/redis"
)

// open opens the service of a URL.
func open(t testing.TB, address, namespace string) *redis.Backend {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	opts, err := redis.ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	opts.Namespace = namespace
	return redis.New(opts)
}

func TestConformance(t *testing.T) {
	for what, namespace := range map[string]string{"with a namespace": "dlock", "with plain names": ""} {
		t.Run(what, func(t *testing.T) {
			server, db := redistest.Start(t, "--databases", "1000"), 0
			backendtest.Run(t, namespace, func(t *testing.T) backendtest.Service {
				db++
				address := server.URL() + "/" + strconv.Itoa(db)
				return backendtest.Service{Dial: func(namespace string) backend.Backend { return open(t, address, namespace) }}
			})
		})
	}
}
