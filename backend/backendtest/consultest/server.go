// Package consultest starts real Consul servers for tests, alone or as a cluster. All of
// it ends with the test.
package consultest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/daemon"
)

// Version is the Consul that the tests run.
const Version = "1.14.3"

// Server is one Consul server on loopback ports.
type Server struct {
	*daemon.Daemon // the one that was started last

	Port int // of HTTP
	Dir  string

	t     testing.TB
	args  []string
	token string // of clients; empty without ACLs
}

// defaults make sessions as short as tests want them, elections quick, and let any
// number of clients come from one address.
const defaults = `
session_ttl_min = "1s"
performance { raft_multiplier = 1 }
limits { http_max_conns_per_client = 10000 }
disable_update_check = true
log_level = "info"
leave_on_terminate = false
`

// Start starts a server of its own and returns when it has elected itself. Settings
// are of its configuration (`session_ttl_min = "10s"`) and win over the defaults. It
// keeps its data over a Restart.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	for range 10 {
		s := prepare(t, 1, settings)
		err := s.launch()
		if err == nil {
			err = s.awaitLeader()
		}
		if err == nil {
			return s
		}
		if !errors.Is(err, errPortTaken) {
			t.Fatal(err)
		}
	}
	t.Fatal("consul: each port was taken before it could be used")
	panic("unreachable")
}

// prepare writes the configuration of a server that is one of so many.
func prepare(t testing.TB, servers int, settings []string) *Server {
	t.Helper()
	s := &Server{t: t, Port: daemon.FreePort(t, 1, 2, 3), Dir: daemon.Dir(t)}
	text := defaults + fmt.Sprintf(`
node_name = "node%d"
data_dir = %q
server = true
bootstrap_expect = %d
bind_addr = "127.0.0.1"
ports { http = %d, server = %d, serf_lan = %d, serf_wan = %d, dns = -1, grpc = -1, grpc_tls = -1 }
`, s.Port, filepath.Join(s.Dir, "data"), servers, s.Port, s.Port+1, s.Port+2, s.Port+3)
	s.args = []string{"agent"}
	for i, settings := range append([]string{text}, settings...) {
		file := filepath.Join(s.Dir, fmt.Sprintf("%d.hcl", i))
		if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
			t.Fatal(err)
		}
		s.args = append(s.args, "-config-file", file)
	}
	return s
}

var errPortTaken = errors.New("consul: a port is taken")

// launch starts the process and waits until it answers.
func (s *Server) launch() error {
	s.Daemon = daemon.Start(s.t, filepath.Join(s.Dir, "log"), Program(s.t), s.args...)
	return s.await("does not answer", func(c *api.Client) bool {
		_, err := c.Status().Leader()
		return err == nil
	})
}

// awaitLeader waits until the server can be written to.
func (s *Server) awaitLeader() error {
	return s.await("has no leader", func(c *api.Client) bool {
		_, err := c.KV().Put(&api.KVPair{Key: "ready"}, nil)
		if err == nil {
			_, err = c.KV().Delete("ready", nil)
		}
		if err == nil { // sessions need the agent's node
			var id string
			if id, _, err = c.Session().CreateNoChecks(nil, nil); err == nil {
				_, err = c.Session().Destroy(id, nil)
			}
		}
		return err == nil
	})
}

func (s *Server) await(what string, is func(*api.Client) bool) error {
	c := s.Client()
	for deadline := time.Now().Add(backendtest.Patience); !is(c); time.Sleep(10 * time.Millisecond) {
		select {
		case <-s.Daemon.Exited():
			if log := s.Log(); !strings.Contains(log, "address already in use") {
				return errors.New("consul ended: " + log)
			}
			return errPortTaken
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("consul %s: %s", what, s.Log())
		}
	}
	return nil
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// URL is consul://host:port.
func (s *Server) URL() string { return "consul://" + s.Addr() }

// Client returns a client of the server.
func (s *Server) Client() *api.Client { return newClient(s.t, s.Addr(), s.token) }

// Restart kills the server if it lives, and starts it with the same ports and data, and
// with arguments of its own from now on.
func (s *Server) Restart(args ...string) {
	s.t.Helper()
	s.Kill()
	s.args = append(s.args, args...)
	if err := errors.Join(s.launch(), s.awaitLeader()); err != nil {
		s.t.Fatal(err)
	}
}

// Cluster starts three servers and returns when they have a leader.
func Cluster(t testing.TB, settings ...string) []*Server {
	t.Helper()
	var servers []*Server
	join := ""
	for range 3 {
		s := prepare(t, 3, append(settings, join))
		if err := s.launch(); err != nil {
			t.Fatal(err)
		}
		join = fmt.Sprintf("retry_join = [%q]\nretry_interval = \"1s\"", fmt.Sprintf("127.0.0.1:%d", servers0(servers, s).Port+2))
		servers = append(servers, s)
	}
	for _, s := range servers {
		if err := s.awaitLeader(); err != nil {
			t.Fatal(err)
		}
	}
	return servers
}

func servers0(all []*Server, s *Server) *Server {
	if len(all) > 0 {
		return all[0]
	}
	return s
}

// Leader finds the leader of a cluster.
func Leader(t testing.TB, servers []*Server) (leader *Server, others []*Server) {
	t.Helper()
	addr, err := servers[0].Client().Status().Leader()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		if addr == net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port+1)) {
			leader = s
		} else {
			others = append(others, s)
		}
	}
	if leader == nil {
		t.Fatalf("none of the servers is the leader %s", addr)
	}
	return leader, others
}

var program struct {
	sync.Mutex
	path string
}

// Program returns the path of consul. It is built once, which takes some minutes, and
// kept in the user's cache directory.
func Program(t testing.TB) string {
	t.Helper()
	program.Lock()
	defer program.Unlock()
	if program.path == "" {
		path, err := build()
		if err != nil {
			t.Fatalf("consul %s could not be built: %v", Version, err)
		}
		program.path = path
	}
	return program.path
}

// build builds consul unless that was done before, by us or by another process.
func build() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "dlock-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "consul-"+Version)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	guard, err := os.OpenFile(path+".building", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer guard.Close()
	if err := syscall.Flock(int(guard.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	module, err := moduleDir()
	if err != nil {
		return "", err
	}
	c := exec.Command("go", "build", "-ldflags=-s -w", "-o", path+".new", "github.com/hashicorp/consul")
	c.Dir, c.Env = module, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, os.Rename(path+".new", path)
}

// moduleDir finds the module in which consul is a tool.
func moduleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		module := filepath.Join(dir, "testscripts", "servers", "consul")
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return module, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("testscripts/servers/consul was not found above the working directory")
		}
	}
}
