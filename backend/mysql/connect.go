package mysql

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock/dlock/backend"
)

// idleLimit is how long the server keeps a connection that says nothing, until a
// hold asks for more. A contender that was cut off without a word may be given the
// door, and keeps all behind it waiting for that long.
const idleLimit = 3 * time.Second

// keepAlive finds out in half a minute that a host is gone.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// wire is a connection to the server, which notes what the server says of itself when it
// greets: its version and the number of the thread that serves us.
type wire struct {
	net.Conn
	greeting []byte
	version  string
	thread   uint32
}

type wireKey struct{}

// dial connects the wire that the context carries.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	w := ctx.Value(wireKey{}).(*wire)
	d := net.Dialer{KeepAliveConfig: keepAlive}
	var err error
	w.Conn, err = d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Read reads, and looks at the first packet.
func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if w.version == "" && len(w.greeting) < 1024 {
		w.greeting = append(w.greeting, p[:n]...)
		w.greet()
	}
	return n, err
}

// greet reads 3 bytes of length, 1 of sequence, 1 of protocol, the version and a zero,
// 4 bytes of thread.
func (w *wire) greet() {
	const head = 5
	if len(w.greeting) < head || w.greeting[4] != 10 {
		return
	}
	version, rest, found := strings.Cut(string(w.greeting[head:]), "\x00")
	if !found || len(rest) < 4 {
		return
	}
	w.version, w.thread, w.greeting = version, binary.LittleEndian.Uint32([]byte(rest)), nil
}

// SyscallConn lets the client library see whether the server has hung up.
func (w *wire) SyscallConn() (syscall.RawConn, error) {
	return w.Conn.(syscall.Conn).SyscallConn()
}

// flavour is what kind of server it is.
type flavour struct {
	mariadb      bool
	major, minor int
}

// parseVersion reads "8.0.36" or "5.5.5-10.11.6-MariaDB-log".
func parseVersion(s string) flavour {
	f := flavour{mariadb: strings.Contains(s, "MariaDB")}
	if f.mariadb {
		s = strings.TrimPrefix(s, "5.5.5-") // for clients that know no version above 9
	}
	major, rest, _ := strings.Cut(s, ".")
	minor, _, _ := strings.Cut(rest, ".")
	f.major, _ = strconv.Atoi(major)
	f.minor, _ = strconv.Atoi(minor)
	return f
}

// old tells whether the server lacks what dlock needs; an unknown version does not.
func (f flavour) old() bool {
	least := flavour{major: 8}
	if f.mariadb {
		least = flavour{major: 10, minor: 6}
	}
	return f.major != 0 && (f.major < least.major || f.major == least.major && f.minor < least.minor)
}

// settings is the statement that makes a connection independent of the server's
// defaults: no cut values, no waits of hours, nothing that ends a wait early.
func (f flavour) settings() string {
	own := "transaction_isolation = 'READ-COMMITTED', max_execution_time = 0"
	if f.mariadb {
		own = "tx_isolation = 'READ-COMMITTED', max_statement_time = 0, idle_transaction_timeout = 0, " +
			"idle_readonly_transaction_timeout = 0, idle_write_transaction_timeout = 0"
	}
	return fmt.Sprintf("SET sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1, completion_type = 0, "+
		"wait_timeout = %d, innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, %s", int(idleLimit.Seconds()), own)
}

// config is what the client library is told. A statement carries its values with it:
// one trip, where a prepared one takes three.
func (b *Backend) config() *mysql.Config {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.DBName, c.TLS = b.opts.Username, b.opts.Password, b.opts.Database, b.opts.TLS
	c.Net, c.Addr = "tcp", b.opts.Addr
	if b.opts.Socket != "" {
		c.Net, c.Addr = "unix", b.opts.Socket
	}
	c.DialFunc, c.InterpolateParams, c.Logger = dial, true, &mysql.NopLogger{}
	return c
}

// connect makes a new session.
func (b *Backend) connect(ctx context.Context) (*session, error) {
	connector, err := mysql.NewConnector(b.config())
	if err != nil {
		return nil, b.translate(err)
	}
	w := &wire{}
	conn, err := connector.Connect(context.WithValue(ctx, wireKey{}, w))
	if err != nil {
		return nil, b.translate(err)
	}
	s := &session{b: b, conn: conn, wire: w, flavour: parseVersion(w.version)}
	if s.flavour.old() {
		s.close()
		return nil, &opError{msg: fmt.Sprintf("%s is version %s; dlock needs MySQL 8.0 or MariaDB 10.6", b.opts.address(), w.version),
			kind: backend.ErrUnavailable, err: errOld, answered: true, final: true}
	}
	if _, err := s.exec(ctx, s.flavour.settings()); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// session takes the parked session, or makes one.
func (b *Backend) session(ctx context.Context) (*session, error) {
	b.mu.Lock()
	s := b.parked
	b.parked = nil
	b.mu.Unlock()
	if s != nil && s.fresh(ctx) {
		return s, nil
	}
	s.close()
	return b.connect(ctx)
}

// fresh tells whether the session is of use, as far as can be seen from here.
func (s *session) fresh(ctx context.Context) bool {
	return !s.broken && s.conn.(driver.SessionResetter).ResetSession(ctx) == nil
}

// park keeps a session that holds no named lock for the next use.
func (b *Backend) park(s *session) {
	if s == nil || s.broken {
		s.close()
		return
	}
	b.mu.Lock()
	s, b.parked = b.parked, s
	b.mu.Unlock()
	s.close()
}
