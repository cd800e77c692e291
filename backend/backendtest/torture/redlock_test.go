package torture_test

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/backend/backendtest/torture"
	"github.com/dlock/dlock/backend/redlock"
)

// victims are two of the five servers: one that stops and goes on, and one that is killed
// and comes back without its data, as it may, when all leases that it knew have ended.
type victims struct{ stops, forgets *redistest.Server }

func (v victims) Stop() { v.stops.Stop() }
func (v victims) Cont() { v.stops.Cont() }
func (v victims) Kill() { v.forgets.Kill() }

func (v victims) Restart(args ...string) {
	time.Sleep(leftoverLimit / 2)
	v.forgets.Restart(args...)
}

// leftoverLimit is how long a lease may stand on servers that could not be told of its end.
const leftoverLimit = 12 * time.Second

// redlockService is five servers. Half of the contenders reach three of them, a majority,
// through relays.
func redlockService(t *testing.T) (torture.Service, []torture.Fault) {
	s := torture.Service{Name: "redlock", Open: openRedlock(t), Leases: true, UnorderedShared: true}
	var servers []*redistest.Server
	var straight, relayed []string
	for i := range 5 {
		server := redistest.Start(t)
		addr := server.Addr()
		servers, straight = append(servers, server), append(straight, addr)
		if 1 <= i && i <= 3 {
			l := relay.New(t, addr)
			s.Relays, addr = append(s.Relays, l), l.Addr()
		}
		relayed = append(relayed, addr)
	}
	s.URL, s.Server = "redlock://"+strings.Join(straight, ","), victims{servers[0], servers[1]}
	s.Ways = []string{s.URL, "redlock://" + strings.Join(relayed, ",")}
	s.Forgetful = func() {
		for _, server := range servers[2:] { // those that always answer
			if err := server.Client().FlushAll(context.Background()).Err(); err != nil {
				t.Error(err)
			}
		}
	}
	s.Leftovers = func() (left []string) {
		for limit := time.Now().Add(leftoverLimit); ; time.Sleep(100 * time.Millisecond) {
			left = sweep(s.Open(s.URL))
			for _, server := range servers {
				left = append(left, redisLeftovers(server)...)
			}
			if len(left) == 0 || time.Now().After(limit) {
				return left
			}
		}
	}
	faults := slices.Concat(torture.ProcessFaults(), torture.NetworkFaults(), torture.ServerFaults(), []torture.Fault{torture.ForgetFault()})
	return s, faults
}

func openRedlock(t *testing.T) func(string) backend.Backend {
	return func(address string) backend.Backend {
		hosts, _ := strings.CutPrefix(address, "redlock://")
		opts, err := redlock.ParseURL(&url.URL{Scheme: "redlock", Host: hosts})
		if err != nil {
			t.Fatal(err)
		}
		opts.Namespace = "dlock"
		return redlock.New(opts)
	}
}
