// Package redistest starts real Redis servers for tests, alone, as a cluster, under
// Sentinel and with TLS. All of it ends with the test.
package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/daemon"
)

// Server is one redis-server on a loopback port and a unix socket.
type Server struct {
	*daemon.Daemon // the one that was started last

	Port int
	Dir  string // its working directory

	t     testing.TB
	args  []string
	tls   *tls.Config   // of clients; nil without TLS
	clock *daemon.Clock // nil: the true time
}

// Start starts a server that keeps nothing on disk, and returns when it answers.
// Args are redis-server's own ("--appendonly", "yes") and win over the defaults.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, func(s *Server) { s.args = args })
}

// StartWithClock starts a server whose wall clock is that of the Clock.
func StartWithClock(t testing.TB, args ...string) (*Server, *daemon.Clock) {
	t.Helper()
	c := daemon.NewClock(t)
	return start(t, func(s *Server) { s.args, s.clock = args, c }), c
}

// start starts a server that configure has completed; Port and Dir are set by then.
func start(t testing.TB, configure func(*Server)) *Server {
	t.Helper()
	for range 10 {
		s := &Server{t: t, Port: daemon.FreePort(t, busDistance), Dir: daemon.Dir(t)}
		configure(s)
		err := s.launch()
		if err == nil {
			return s
		}
		if !errors.Is(err, errPortTaken) {
			t.Fatal(err)
		}
	}
	t.Fatal("redis-server: each port was taken before it could use it")
	panic("unreachable")
}

// busDistance is from a cluster node's port to that of its bus.
const busDistance = 10000

var errPortTaken = errors.New("redis-server: the port is taken")

// launch starts the process and waits until it answers.
func (s *Server) launch() error {
	s.t.Helper()
	program := daemon.Find(s.t, "redis-server", "apt-get install redis-server")
	args := []string{
		"--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--unixsocket", s.Socket(),
		"--save", "", "--dir", s.Dir,
	}
	if len(s.args) > 0 && !strings.HasPrefix(s.args[0], "--") { // a file of settings comes first
		args = slices.Concat(s.args[:1], args, s.args[1:])
	} else {
		args = append(args, s.args...)
	}
	if s.clock != nil {
		program, args = s.clock.Under(program, args)
	}
	s.Daemon = daemon.Start(s.t, filepath.Join(s.Dir, "log"), program, args...)
	client := s.newClient()
	defer client.Close()
	for deadline := time.Now().Add(backendtest.Patience); ; time.Sleep(5 * time.Millisecond) {
		select {
		case <-s.Daemon.Exited():
			return s.whyExited()
		default:
		}
		if answers(client.Ping(s.t.Context()).Err()) {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("redis-server does not answer: " + s.Log())
		}
	}
}

// answers tells whether the error of a PING comes from a server that works: one that
// wants a password does, one that still reads its data does not.
func answers(err error) bool {
	if reply := redis.Error(nil); errors.As(err, &reply) {
		return !strings.HasPrefix(reply.Error(), "LOADING")
	}
	return err == nil
}

func (s *Server) whyExited() error {
	if log := s.Log(); !strings.Contains(log, "Address already in use") {
		return errors.New("redis-server ended: " + log)
	}
	return errPortTaken
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// Socket is the path of the unix socket.
func (s *Server) Socket() string { return filepath.Join(s.Dir, "redis.sock") }

// URL is redis://host:port, or rediss:// with TLS.
func (s *Server) URL() string {
	if s.tls != nil {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Client returns a client of the server, closed after the test.
func (s *Server) Client() *redis.Client {
	c := s.newClient()
	s.t.Cleanup(func() { c.Close() })
	return c
}

func (s *Server) newClient() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: s.Addr(), TLSConfig: s.tls, MaxRetries: -1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// Restart kills the server if it lives, and starts it on the same port and directory
// with these arguments added. Without appendonly its data are gone.
func (s *Server) Restart(args ...string) {
	s.t.Helper()
	s.Kill()
	s.args = slices.Concat(s.args, args)
	if err := s.launch(); err != nil {
		s.t.Fatal(err)
	}
}

// info returns the fields of one section of INFO, or of another reply like it.
func info(ctx context.Context, c *redis.Client, command ...any) map[string]string {
	text, err := c.Do(ctx, command...).Text()
	fields := map[string]string{}
	if err != nil {
		return fields // not yet
	}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields
}
