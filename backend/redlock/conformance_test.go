package redlock

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
)

// servers are independent servers that make one lock service.
type servers []*redistest.Server

func start(t testing.TB, n int, args ...string) (list servers) {
	t.Helper()
	for range n {
		list = append(list, redistest.Start(t, args...))
	}
	return list
}

func (s servers) addrs() (list []string) {
	for _, server := range s {
		list = append(list, server.Addr())
	}
	return list
}

// open opens the service on servers as the command line does.
func open(t testing.TB, addrs []string, path, namespace string) *Backend {
	t.Helper()
	o, err := ParseURL(&url.URL{Scheme: schemePlain, Host: strings.Join(addrs, ","), Path: path})
	if err != nil {
		t.Fatal(err)
	}
	o.Namespace = namespace
	return New(o)
}

func TestConformance(t *testing.T) {
	for _, tt := range []struct {
		what, namespace string
		servers         int
	}{
		{"three servers", "dlock", 3},
		{"four servers, plain names", "", 4},
		{"five servers", "dlock", 5},
	} {
		t.Run(tt.what, func(t *testing.T) {
			s, db := start(t, tt.servers, "--databases", "1000"), 0
			backendtest.Run(t, tt.namespace, func(t *testing.T) backendtest.Service {
				db++
				path := fmt.Sprintf("/%d", db)
				return backendtest.Service{Dial: func(namespace string) backend.Backend { return open(t, s.addrs(), path, namespace) }}
			})
		})
	}
}
