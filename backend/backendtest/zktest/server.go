// Package zktest starts real ZooKeeper servers for tests, alone or as an ensemble. All
// of it ends with the test.
package zktest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/daemon"
)

const (
	jar     = "/usr/share/java/zookeeper.jar"
	install = "apt-get install zookeeper"
	// others is what Debian's package depends on, but its jar does not name: the log,
	// and Netty for TLS.
	others = ":/usr/share/java/slf4j-log4j12.jar:/usr/share/java/log4j-1.2.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar"
)

// Server is one ZooKeeper server on a loopback port.
type Server struct {
	*daemon.Daemon // the one that was started last

	Port int
	Dir  string

	t        testing.TB
	settings []string // of zoo.cfg; later ones win
}

// defaults make sessions as short as tests want them, and as long, and let any number
// of clients come from one address.
var defaults = []string{
	"tickTime=200", "maxSessionTimeout=60000", "maxClientCnxns=0", "admin.enableServer=false",
	"clientPortAddress=127.0.0.1", "4lw.commands.whitelist=*",
}

// Start starts a server of its own and returns when it answers. Settings are lines of
// zoo.cfg ("tickTime=2000"), or of java where they begin with a dash, and win over
// the defaults.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	for range 10 {
		s := &Server{t: t, Port: daemon.FreePort(t), Dir: dir(t), settings: settings}
		err := s.launch()
		if err == nil {
			return s
		}
		if !errors.Is(err, errPortTaken) {
			t.Fatal(err)
		}
	}
	t.Fatal("zookeeper: each port was taken before it could use it")
	panic("unreachable")
}

var errPortTaken = errors.New("zookeeper: the port is taken")

// dir makes a directory for a server, in memory where that is possible: ZooKeeper
// waits for the disk at each write.
func dir(t testing.TB) string {
	t.Helper()
	name, err := os.MkdirTemp("/dev/shm", "dlock-zk")
	if err != nil {
		return daemon.Dir(t)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// launch starts the process and waits until it serves clients.
func (s *Server) launch() error {
	s.t.Helper()
	s.run()
	return s.await()
}

// run starts the process.
func (s *Server) run() {
	s.t.Helper()
	if _, err := os.Stat(jar); err != nil {
		s.t.Fatalf("%v; to install it: %s", err, install)
	}
	lines := append(slices.Clone(defaults), "dataDir="+s.Dir, "clientPort="+strconv.Itoa(s.Port))
	java := []string{"-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Dzookeeper.skipACL=no"}
	for _, l := range s.settings {
		if strings.HasPrefix(l, "-") {
			java = append(java, l)
		} else {
			lines = append(lines, l)
		}
	}
	s.write("zoo.cfg", strings.Join(lines, "\n")+"\n")
	s.write("log4j.properties", "log4j.rootLogger=WARN, A\nlog4j.appender.A=org.apache.log4j.ConsoleAppender\n"+
		"log4j.appender.A.layout=org.apache.log4j.PatternLayout\nlog4j.appender.A.layout.ConversionPattern=%d %p %c{1} %m%n\n")
	args := append(java, "-cp", s.Dir+":"+jar+others, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(s.Dir, "zoo.cfg"))
	s.Daemon = daemon.Start(s.t, filepath.Join(s.Dir, "log"), daemon.Find(s.t, "java", install), args...)
}

func (s *Server) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.Dir, name), []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// await waits until the server serves clients.
func (s *Server) await() error {
	for deadline := time.Now().Add(backendtest.Patience); ; time.Sleep(10 * time.Millisecond) {
		select {
		case <-s.Daemon.Exited():
			if strings.Contains(s.Log(), "Address already in use") {
				return errPortTaken
			}
			return errors.New("zookeeper ended: " + s.Log())
		default:
		}
		if s.Mode() != "" {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("zookeeper does not serve: " + s.Log())
		}
	}
}

// Mode is "standalone", "leader" or "follower", or empty while it serves nobody.
func (s *Server) Mode() string { return s.field("srvr", "Mode: ") }

// field finds what follows a word at the beginning of a line of an answer.
func (s *Server) field(command, word string) string {
	for line := range strings.Lines(s.Ask(command)) {
		if v, ok := strings.CutPrefix(line, word); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// Ask sends one of ZooKeeper's commands of four letters; no answer is empty.
func (s *Server) Ask(command string) string {
	c, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(c, command); err != nil {
		return ""
	}
	text, _ := io.ReadAll(c) // what came before an error is the answer
	return string(text)
}

// Received counts the packets that clients have sent, those of Received included.
func (s *Server) Received() int {
	s.t.Helper()
	n, err := strconv.Atoi(s.field("mntr", "zk_packets_received"))
	if err != nil {
		s.t.Fatalf("mntr: %v", err)
	}
	return n
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// URL is zk://host:port.
func (s *Server) URL() string { return "zk://" + s.Addr() }

// Client returns a client of the server with a session of its own, closed after the test.
func (s *Server) Client() *zk.Conn {
	s.t.Helper()
	return client(s.t, s.Addr())
}

func client(t testing.TB, addrs ...string) *zk.Conn {
	t.Helper()
	c, _, err := zk.Connect(addrs, 30*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

type silent struct{}

// Printf prints nothing.
func (silent) Printf(string, ...any) {}

// Restart kills the server if it lives, and starts it on the same port with its data and
// with these settings added.
func (s *Server) Restart(settings ...string) {
	s.t.Helper()
	s.Kill()
	s.settings = slices.Concat(s.settings, settings)
	if err := s.launch(); err != nil {
		s.t.Fatal(err)
	}
}

// Wipe kills the server and starts it on the same port without its data.
func (s *Server) Wipe() {
	s.t.Helper()
	s.Kill()
	if err := os.RemoveAll(filepath.Join(s.Dir, "version-2")); err != nil {
		s.t.Fatal(err)
	}
	s.Restart()
}

// String names the server in messages.
func (s *Server) String() string { return fmt.Sprintf("%s (%s)", s.Addr(), s.Mode()) }
