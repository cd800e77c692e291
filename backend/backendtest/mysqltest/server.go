// Package mysqltest starts real MariaDB servers for tests, with any setting, as a
// replica, with TLS, and under a clock that can be set. All of it ends with the test.
package mysqltest

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/daemon"
)

// Password is that of User, who may do everything.
const (
	User     = "dlock"
	Password = "s3cret pass/word?#"
)

// install is what a missing server is told.
const install = "apt-get install mariadb-server"

// Server is one mariadbd on a loopback port and a unix socket.
type Server struct {
	*daemon.Daemon // the one that was started last

	Port int
	Dir  string // where its files are

	t     testing.TB
	args  []string
	clock *daemon.Clock // nil: the true time
}

// Start starts a server with an empty data directory, and returns when it answers. Args
// are mariadbd's own ("--wait-timeout=3") and win over the defaults.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return start(t, nil, args)
}

// StartWithClock starts a server whose wall clock is that of the Clock.
func StartWithClock(t testing.TB, args ...string) (*Server, *daemon.Clock) {
	t.Helper()
	c := daemon.NewClock(t)
	return start(t, c, args), c
}

func start(t testing.TB, clock *daemon.Clock, args []string) *Server {
	t.Helper()
	for range 10 {
		s := &Server{t: t, Port: daemon.FreePort(t), Dir: dir(t), args: args, clock: clock}
		s.install()
		err := s.launch()
		if err == nil {
			return s
		}
		if !errors.Is(err, errPortTaken) {
			t.Fatal(err)
		}
	}
	t.Fatal("mariadbd: each port was taken before it could use it")
	panic("unreachable")
}

// memory is where files cost no disk, on systems that have it.
const memory = "/dev/shm"

// dir makes a directory in memory, if there is such a place.
func dir(t testing.TB) string {
	t.Helper()
	if _, err := os.Stat(memory); err != nil {
		return daemon.Dir(t)
	}
	d, err := os.MkdirTemp(memory, "dlock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(d); err != nil {
			t.Error(err)
		}
	})
	return d
}

// install makes the data directory.
func (s *Server) install() {
	s.t.Helper()
	program := daemon.Find(s.t, "mariadb-install-db", install)
	args := append(s.common(), "--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-log-file-size=8M")
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		s.t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
	users := fmt.Sprintf("CREATE DATABASE IF NOT EXISTS d;\nCREATE OR REPLACE USER %s@'%%' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO %s@'%%' WITH GRANT OPTION;\n",
		User, Password, User)
	if err := os.WriteFile(s.file("init.sql"), []byte(users), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// common are the options of both programs.
func (s *Server) common() []string {
	args := []string{"--no-defaults", "--datadir=" + s.file("data"), "--tmpdir=" + s.Dir}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root")
	}
	return args
}

func (s *Server) file(name string) string { return filepath.Join(s.Dir, name) }

var errPortTaken = errors.New("mariadbd: the port is taken")

// launch starts the process and waits until it answers.
func (s *Server) launch() error {
	s.t.Helper()
	program := daemon.Find(s.t, "mariadbd", install)
	args := slices.Concat(s.common(), []string{
		"--port=" + strconv.Itoa(s.Port), "--bind-address=127.0.0.1", "--socket=" + s.Socket(), "--pid-file=" + s.file("pid"),
		"--init-file=" + s.file("init.sql"), "--skip-name-resolve", "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=16M",
		"--max-connections=2000", "--performance-schema=OFF", "--aria-pagecache-buffer-size=1M", "--key-buffer-size=1M",
	}, s.args)
	if s.clock != nil {
		program, args = s.clock.Under(program, args)
	}
	s.Daemon = daemon.Start(s.t, s.file("log"), program, args...)
	for deadline := time.Now().Add(backendtest.Patience); ; time.Sleep(10 * time.Millisecond) {
		select {
		case <-s.Daemon.Exited():
			return s.whyExited()
		default:
		}
		if s.answers() {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("mariadbd does not answer: " + s.Log())
		}
	}
}

// answers tells whether the users are there.
func (s *Server) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := s.dial(ctx, "d", User, Password)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

func (s *Server) whyExited() error {
	if log := s.Log(); !strings.Contains(log, "Address already in use") {
		return errors.New("mariadbd ended: " + log)
	}
	return errPortTaken
}

// Addr is host:port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// Socket is the path of the unix socket.
func (s *Server) Socket() string { return s.file("sock") }

// URL is that of a database, without options.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("mysql://%s:%s@%s/%s", User, EscapedPassword, s.Addr(), database)
}

// EscapedPassword is Password as it stands in a URL.
const EscapedPassword = "s3cret%20pass%2Fword%3F%23"

// Database makes a database.
func (s *Server) Database(name string) {
	s.t.Helper()
	s.Do("CREATE DATABASE `" + name + "`")
}

// Restart kills the server if it lives, and starts it on the same port and data with
// these arguments added.
func (s *Server) Restart(args ...string) {
	s.t.Helper()
	s.Kill()
	s.args = slices.Concat(s.args, args)
	if err := s.launch(); err != nil {
		s.t.Fatal(err)
	}
}

// Conn is a connection of a test.
type Conn struct {
	t    testing.TB
	conn driver.Conn
}

func (s *Server) dial(ctx context.Context, database, user, password string) (driver.Conn, error) {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Passwd, cfg.Net, cfg.Addr, cfg.DBName = user, password, "unix", s.Socket(), database
	cfg.Logger, cfg.InterpolateParams = &mysql.NopLogger{}, true
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return connector.Connect(ctx)
}

// Conn connects to a database until the test ends, straight to the server.
func (s *Server) Conn(database string) *Conn {
	s.t.Helper()
	return s.connect(database, User, Password)
}

// RootConn is a connection as root, to whom nothing is refused.
func (s *Server) RootConn() *Conn {
	s.t.Helper()
	return s.connect("d", "root", "")
}

func (s *Server) connect(database, user, password string) *Conn {
	s.t.Helper()
	c, err := s.dial(s.t.Context(), database, user, password)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	return &Conn{s.t, c}
}

// Do runs statements on a connection of their own.
func (s *Server) Do(statements ...string) {
	s.t.Helper()
	c := s.Conn("d")
	defer c.Close()
	for _, statement := range statements {
		c.Do(statement)
	}
}

// Close ends the connection.
func (c *Conn) Close() { c.conn.Close() }

// Do runs a statement, which must succeed.
func (c *Conn) Do(statement string) {
	c.t.Helper()
	if err := c.Try(statement); err != nil {
		c.t.Fatalf("%s: %v", statement, err)
	}
}

// Try runs a statement.
func (c *Conn) Try(statement string) error {
	_, err := c.conn.(driver.ExecerContext).ExecContext(context.Background(), statement, nil)
	return err
}

// Rows runs a query and returns its rows as text; NULL is empty.
func (c *Conn) Rows(query string) [][]string {
	c.t.Helper()
	rows, err := c.conn.(driver.QueryerContext).QueryContext(context.Background(), query, nil)
	if err != nil {
		c.t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	var all [][]string
	for {
		row := make([]driver.Value, len(rows.Columns()))
		err := rows.Next(row)
		if err == io.EOF {
			return all
		}
		if err != nil {
			c.t.Fatalf("%s: %v", query, err)
		}
		var texts []string
		for _, v := range row {
			switch x := v.(type) {
			case nil:
				texts = append(texts, "")
			case []byte:
				texts = append(texts, string(x))
			default:
				texts = append(texts, fmt.Sprint(x))
			}
		}
		all = append(all, texts)
	}
}

// One runs a query and returns the one value of its one row.
func (c *Conn) One(query string) string {
	c.t.Helper()
	rows := c.Rows(query)
	if len(rows) != 1 || len(rows[0]) != 1 {
		c.t.Fatalf("%s: %q, want one value", query, rows)
	}
	return rows[0][0]
}

// Number is One as a number.
func (c *Conn) Number(query string) int {
	c.t.Helper()
	n, err := strconv.Atoi(c.One(query))
	if err != nil {
		c.t.Fatalf("%s: %v", query, err)
	}
	return n
}
