package torture_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest/consultest"
	"github.com/dlock/dlock/backend/backendtest/mysqltest"
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/backend/backendtest/torture"
	"github.com/dlock/dlock/backend/backendtest/zktest"
	"github.com/dlock/dlock/backend/consul"
	"github.com/dlock/dlock/backend/mysql"
	"github.com/dlock/dlock/backend/zookeeper"
)

// server is one server of a service.
type server interface {
	torture.Server
	Addr() string
}

// behindRelays completes a service whose ways lead through relays to one server.
func behindRelays(t *testing.T, s torture.Service, server server) (torture.Service, []torture.Fault) {
	s.Leases, s.Server = true, server
	for range 3 {
		l := relay.New(t, server.Addr())
		s.Relays = append(s.Relays, l)
		s.Ways = append(s.Ways, strings.Replace(s.URL, server.Addr(), l.Addr(), 1))
	}
	if s.Leftovers == nil {
		s.Leftovers = func() []string { return sweep(s.Open(s.URL)) }
	}
	return s, slices.Concat(torture.ProcessFaults(), torture.NetworkFaults(), torture.ServerFaults())
}

func zooKeeperService(t *testing.T) (torture.Service, []torture.Fault) {
	server := zktest.Start(t)
	s := torture.Service{Name: "zookeeper", URL: server.URL() + "/x", Open: func(address string) backend.Backend {
		opts, err := zookeeper.ParseURL(parse(t, address))
		if err != nil {
			t.Fatal(err)
		}
		return zookeeper.New(opts)
	}}
	s.Leftovers = func() []string {
		left := sweep(s.Open(s.URL))
		nodes, _, err := server.Client().Children("/x/t")
		if err != nil {
			left = append(left, err.Error())
		}
		return append(left, nodes...)
	}
	return behindRelays(t, s, server)
}

// consulService has sessions as short as the harness wants them.
func consulService(t *testing.T) (torture.Service, []torture.Fault) {
	server := consultest.Start(t)
	s := torture.Service{Name: "consul", URL: server.URL() + "/x", Open: func(address string) backend.Backend {
		opts, err := consul.ParseURL(parse(t, address))
		if err != nil {
			t.Fatal(err)
		}
		return consul.New(opts)
	}}
	s.Leftovers = func() []string {
		left := sweep(s.Open(s.URL))
		keys, _, err := server.Client().KV().Keys("x", "", nil)
		if err != nil {
			left = append(left, err.Error())
		}
		return append(left, keys...)
	}
	return behindRelays(t, s, server)
}

func mysqlService(mode string) func(*testing.T) (torture.Service, []torture.Fault) {
	return func(t *testing.T) (torture.Service, []torture.Fault) {
		server := mysqltest.Start(t)
		server.Database("torture")
		name := "mysql-" + mode
		return behindRelays(t, torture.Service{Name: name, URL: server.URL("torture") + "?mode=" + mode, Open: func(address string) backend.Backend {
			opts, err := mysql.ParseURL(parse(t, address))
			if err != nil {
				t.Fatal(err)
			}
			opts.Namespace = "dlock"
			return mysql.New(opts)
		}}, server)
	}
}

func parse(t *testing.T, address string) *url.URL {
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
