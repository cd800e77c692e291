package zktest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/daemon"
	"github.com/dlock/dlock/backend/backendtest/relay"
)

// Ensemble is several servers that elect a leader.
type Ensemble struct {
	Servers []*Server
	links   map[link]*relay.Relay
}

// link is the way that one server, as a follower, takes to another.
type link struct{ from, to *Server }

// StartEnsemble starts n servers and returns when all serve clients. Settings are those
// of Start, for each.
func StartEnsemble(t testing.TB, n int, settings ...string) *Ensemble {
	t.Helper()
	return startEnsemble(t, n, false, settings)
}

// StartCuttable starts n servers that reach each other through relays, so that one can be
// cut off from the leader while clients reach it. Their elections take longer: a
// relay takes connections for one who does not listen yet.
func StartCuttable(t testing.TB, n int, settings ...string) *Ensemble {
	t.Helper()
	return startEnsemble(t, n, true, settings)
}

func startEnsemble(t testing.TB, n int, cuttable bool, settings []string) *Ensemble {
	t.Helper()
	e := &Ensemble{links: map[link]*relay.Relay{}}
	quorum, election := map[*Server]int{}, map[*Server]int{}
	for range n {
		s := &Server{t: t, Port: daemon.FreePort(t), Dir: dir(t)}
		quorum[s], election[s] = daemon.FreePort(t), daemon.FreePort(t)
		e.Servers = append(e.Servers, s)
	}
	for i, s := range e.Servers {
		s.settings = append([]string{"initLimit=50", "syncLimit=5"}, settings...)
		for j, o := range e.Servers {
			addr := fmt.Sprintf("127.0.0.1:%d", quorum[o])
			if s != o && cuttable {
				r := relay.New(t, addr)
				e.links[link{s, o}] = r
				addr = r.Addr()
			}
			s.settings = append(s.settings, fmt.Sprintf("server.%d=%s:%d", j+1, addr, election[o]))
		}
		s.write("myid", fmt.Sprintln(i+1))
		s.run()
	}
	for _, s := range e.Servers {
		if err := s.await(); err != nil {
			t.Fatalf("%v\n%s", err, filepath.Join(s.Dir, "log"))
		}
	}
	return e
}

// URL is zk:// with all servers.
func (e *Ensemble) URL() string {
	var addrs []string
	for _, s := range e.Servers {
		addrs = append(addrs, s.Addr())
	}
	return "zk://" + strings.Join(addrs, ",")
}

// Leader waits for a leader and returns it.
func (e *Ensemble) Leader(t testing.TB) *Server {
	t.Helper()
	var leader *Server
	backendtest.Eventually(t, "a leader", func() bool {
		for _, s := range e.Servers {
			if s.Mode() == "leader" {
				leader = s
			}
		}
		return leader != nil
	})
	return leader
}

// Follower returns one that is not the leader.
func (e *Ensemble) Follower(t testing.TB) *Server {
	t.Helper()
	leader := e.Leader(t)
	for _, s := range e.Servers {
		if s != leader {
			return s
		}
	}
	t.Fatal("no follower")
	panic("unreachable")
}

// Cut lets nothing pass between a follower and the leader, whose connection stays open.
func (e *Ensemble) Cut(follower, leader *Server) { e.links[link{follower, leader}].Hole() }

// Mend undoes Cut.
func (e *Ensemble) Mend(follower, leader *Server) { e.links[link{follower, leader}].Pass() }
