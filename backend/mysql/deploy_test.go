package mysql

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/mysqltest"
)

// TestAdvice: each thing that can be wrong with a server is told in one line, which says
// what to do and holds no secret.
func TestAdvice(t *testing.T) {
	server := mysqltest.Start(t)
	root := server.RootConn()
	for _, statement := range []string{
		"CREATE DATABASE nopk", "CREATE DATABASE narrow", "CREATE DATABASE missing", "CREATE DATABASE there", "CREATE DATABASE other",
		"CREATE TABLE other.dlock_lock (id INT PRIMARY KEY)",
		"CREATE TABLE nopk." + strings.TrimPrefix(strings.Replace(ddl, ", PRIMARY KEY (ns, name)", "", 1), "CREATE TABLE IF NOT EXISTS "),
		"CREATE TABLE narrow." + strings.TrimPrefix(strings.Replace(ddl, "name VARBINARY(255)", "name VARCHAR(64)", 1), "CREATE TABLE IF NOT EXISTS "),
		"CREATE TABLE there." + strings.TrimPrefix(ddl, "CREATE TABLE IF NOT EXISTS "),
		"CREATE USER poor@'%' IDENTIFIED BY 's3cret'", "GRANT SELECT, INSERT, UPDATE, DELETE ON missing.* TO poor@'%'",
		"GRANT SELECT, INSERT, UPDATE, DELETE ON there.* TO poor@'%'", "GRANT SELECT ON other.* TO poor@'%'",
		"CREATE USER reader@'%' IDENTIFIED BY 's3cret'", "GRANT SELECT ON there.* TO reader@'%'",
		"CREATE USER one@'%' IDENTIFIED BY 's3cret' WITH MAX_USER_CONNECTIONS 1", "GRANT ALL ON there.* TO one@'%'",
	} {
		root.Do(statement)
	}
	at := func(user, database string) string {
		return "mysql://" + user + ":s3cret@" + server.Addr() + "/" + database
	}
	for what, tt := range map[string]struct {
		address string
		kind    error
		says    string
	}{
		"no such user":          {at("nobody", "d"), backend.ErrDenied, "refuses this user name or password"},
		"wrong password":        {"mysql://dlock:s3cretwrong@" + server.Addr() + "/d", backend.ErrDenied, "--backend-file"},
		"no such database":      {server.URL("nowhere"), backend.ErrUnavailable, "no such database"},
		"a database of others":  {at("poor", "d"), backend.ErrDenied, "GRANT"},
		"no table and no right": {at("poor", "missing"), backend.ErrDenied, "let somebody who may run: CREATE TABLE IF NOT EXISTS dlock_lock (ns VARBINARY(255)"},
		"no right to write":     {at("reader", "there"), backend.ErrDenied, "GRANT SELECT, INSERT, UPDATE, DELETE"},
		"another table":         {server.URL("other"), backend.ErrUnavailable, "is not as dlock makes it"},
		"no key":                {server.URL("nopk"), backend.ErrUnavailable, "is not as dlock makes it"},
		"a narrow name":         {server.URL("narrow"), backend.ErrUnavailable, "is not as dlock makes it"},
	} {
		for _, mode := range modes {
			_, err := use(t, tt.address+"?"+mode).Acquire(t.Context(), backendtest.NoWait(exclusive("j")))
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s, %s: %v, want %v that says %q", what, mode, err, tt.kind, tt.says)
			}
			if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%s: %q", what, err)
			}
			_, err = use(t, tt.address+"?"+mode).Acquire(t.Context(), backendtest.Request("j", backendtest.Shared))
			if !errors.Is(err, tt.kind) {
				t.Errorf("%s, shared, %s: %v", what, mode, err)
			}
		}
	}
	// A user without the right to make tables needs none where the table is.
	for _, mode := range modes {
		b := use(t, at("poor", "there")+"?"+mode)
		h := backendtest.MustAcquire(t, b, exclusive("j"))
		w := backendtest.Wait(t, use(t, at("poor", "there")+"?"+mode), exclusive("j"))
		backendtest.MustRelease(t, h)
		backendtest.MustRelease(t, w.Hold(t))
	}
	root.Do("REVOKE SUPER, READ ONLY ADMIN ON *.* FROM dlock@'%'")
	root.Do("SET GLOBAL read_only = 1")
	_, err := use(t, server.URL("there")).Acquire(t.Context(), backendtest.NoWait(exclusive("j")))
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "is read-only, such as a replica: name its primary") {
		t.Errorf("read-only: %v", err)
	}
	root.Do("SET GLOBAL read_only = 0")
}

// TestTooManyConnections: it is waited for, and told to who does not wait.
func TestTooManyConnections(t *testing.T) {
	server := mysqltest.Start(t, "--max-connections=10")
	var crowd []*mysqltest.Conn
	for range 11 { // one more is kept for those with all rights, as we are
		crowd = append(crowd, server.Conn("d"))
	}
	_, err := use(t, server.URL("d")).Acquire(t.Context(), backendtest.NoWait(exclusive("j")))
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "max_connections") {
		t.Errorf("%v", err)
	}
	w := backendtest.Acquire(t, use(t, server.URL("d")), exclusive("j"))
	for _, c := range crowd {
		c.Close()
	}
	backendtest.MustRelease(t, w.Hold(t))
}

// TestOldServers: those that lack something are refused, by what they say of themselves.
func TestOldServers(t *testing.T) {
	for version, old := range map[string]bool{
		"5.7.44-log": true, "5.5.5-10.5.29-MariaDB-log": true, "10.5.1-MariaDB": true, "5.5.5-10.6.0-MariaDB": false,
		"8.0.36": false, "8.4.0-commercial": false, "9.1.0": false, "11.4.2-MariaDB-ubu2404": false, "5.5.5-11.8.1-MariaDB": false, "weird": false,
	} {
		if got := parseVersion(version).old(); got != old {
			t.Errorf("%s is old: %v, want %v", version, got, old)
		}
	}
	server := mysqltest.Start(t)
	m := newPatchingMeter(t, server.Addr(), func(b []byte) { copy(b[strings.Index(string(b), "10.11"):], "10.01") })
	_, err := use(t, through(m.addr(), "mode=table")).Acquire(t.Context(), backendtest.NoWait(exclusive("j")))
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "dlock needs MySQL 8.0 or MariaDB 10.6") {
		t.Errorf("%v", err)
	}
}

// TestSpellings: each server is spoken to in its own words.
func TestSpellings(t *testing.T) {
	for version, want := range map[string][2]string{
		"8.0.36":                {"transaction_isolation", "max_execution_time"},
		"5.5.5-10.11.6-MariaDB": {"tx_isolation", "max_statement_time"},
	} {
		set := parseVersion(version).settings()
		for _, w := range want {
			if !strings.Contains(set, ", "+w+" = ") {
				t.Errorf("%s: %s is not in %s", version, w, set)
			}
		}
	}
}

// warnings collects what a Backend warns of.
type warnings struct {
	mu   sync.Mutex
	list []string
}

func (w *warnings) add(s string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, s)
}

func (w *warnings) contain(s string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(strings.Join(w.list, "\n"), s)
}

// TestProxy: something in between that greets as another connection than the one that
// answers may share connections. Leases warn of it; a transaction is refused.
func TestProxy(t *testing.T) {
	server := mysqltest.Start(t)
	m := newPatchingMeter(t, server.Addr(), func(b []byte) {
		if i := strings.IndexByte(string(b[5:]), 0); i > 0 {
			b[5+i+1] ^= 0xff // the thread's number
		}
	})
	w := &warnings{}
	b := use(t, through(m.addr(), "mode=table"))
	b.opts.Warn = w.add
	h := backendtest.MustAcquire(t, b, exclusive("j"))
	if _, err := h.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	backendtest.Eventually(t, "it warns", func() bool { return w.contain("is a proxy") })
	backendtest.MustRelease(t, h)
	_, err := use(t, through(m.addr(), "mode=pessimistic")).Acquire(t.Context(), backendtest.NoWait(exclusive("j")))
	if !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "is a proxy") {
		t.Errorf("%v", err)
	}
	backendtest.MustRelease(t, backendtest.MustAcquire(t, use(t, server.URL("d")), exclusive("j"))) // it left nothing
	s := &session{b: b, id: 5}
	if err := s.identify(6); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("a connection that changes: %v", err)
	}
}

// TestSweep: rows of locks that were not used for long go, the others stay; a later fence
// is larger still.
func TestSweep(t *testing.T) {
	server := mysqltest.Start(t)
	conn := server.Conn("d")
	b := use(t, server.URL("d"))
	h := backendtest.MustAcquire(t, b, exclusive("old"))
	backendtest.MustRelease(t, h)
	backendtest.MustAcquire(t, b, backendtest.Detached(exclusive("crashed"), time.Hour))
	conn.Do("UPDATE dlock_lock SET updated_at = '2001-01-01', expires = '2001-01-01'")
	backendtest.MustRelease(t, backendtest.MustAcquire(t, b, exclusive("new")))
	k := backendtest.MustAcquire(t, b, exclusive("held"))
	for range 2 { // first what crashed is freed
		conn.Do("UPDATE dlock_lock SET updated_at = '2001-01-01' WHERE name = 'crashed'")
		if err := b.with1(t.Context(), func(s *session) error { return s.sweep(t.Context()) }); err != nil {
			t.Fatal(err)
		}
	}
	if left := conn.One("SELECT GROUP_CONCAT(name ORDER BY name) FROM dlock_lock"); left != "held,new" {
		t.Errorf("left: %s", left)
	}
	backendtest.MustRelease(t, k)
	again := backendtest.MustAcquire(t, b, exclusive("old"))
	if again.Grant().Fence <= h.Grant().Fence {
		t.Errorf("fence %d after %d", again.Grant().Fence, h.Grant().Fence)
	}
	backendtest.MustRelease(t, again)
}

// TestURLs: what they may say, and that a refusal shows no secret.
func TestURLs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "my.cnf")
	text := "[mysqld]\nuser=wrong\n[client]\n# a comment\nuser = me\npassword=\"s3cret # x\"\nhost=db.example\nport=3307\ndatabase=locks\n[mysql]\nuser=wrong\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]Options{
		"mysql://u:p@h/db":                            {Addr: "h:3306", Database: "db", Username: "u", Password: "p", Mode: Table},
		"mysql://u:p%2F%3F@h:33/db?mode=pessimistic":  {Addr: "h:33", Database: "db", Username: "u", Password: "p/?", Mode: Pessimistic},
		"mysql://[::1]/db?mode=optimistic":            {Addr: "[::1]:3306", Database: "db", Mode: Optimistic},
		"mysql://h/db?mode=optimistic&cas=updated_at": {Addr: "h:3306", Database: "db", Mode: Optimistic, ByUpdate: true},
		"mysql:///db?socket=/run/s":                   {Socket: "/run/s", Database: "db", Mode: Table},
		"mysql:///?defaults-file=" + file:             {Addr: "db.example:3307", Database: "locks", Username: "me", Password: "s3cret # x", Mode: Table},
		"mysql://you@h:1/other?defaults-file=" + file: {Addr: "h:1", Database: "other", Username: "you", Password: "s3cret # x", Mode: Table},
		"mysql:///db?socket=/s&defaults-file=" + file: {Socket: "/s", Database: "db", Username: "me", Password: "s3cret # x", Mode: Table},
	} {
		got, err := parse(t, address)
		if err != nil || got.Addr != want.Addr || got.Socket != want.Socket || got.Database != want.Database || got.Username != want.Username ||
			got.Password != want.Password || got.Mode != want.Mode || got.ByUpdate != want.ByUpdate {
			t.Errorf("%s: %+v, %v; want %+v", address, got, err, want)
		}
	}
	for _, address := range []string{
		"mysql://u:s3cret@h", "mysql://u:s3cret@h/", "mysql://u:s3cret@/db", "mysql://u:s3cret@h,i/db", "mysql://u:s3cret@h/db/x", "mysql://u:s3cret@h:x1/db",
		"mysql://u:s3cret@h/db?mode=s3cret", "mysql://u:s3cret@h/db?cas=updated_at", "mysql://u:s3cret@h/db?mode=optimistic&cas=s3cret",
		"mysql://u:s3cret@h/db?clientFoundRows=true", "mysql://u:s3cret@h/db?mode=table&mode=table", "mysql://u:s3cret@h/db?mode=",
		"mysql://u:s3cret@h/db?socket=/s", "mysql://u:s3cret@h/db?tls=s3cret", "mysql://u:s3cret@h/db?cert=x", "mysql://u:s3cret@h/db?ca=/nowhere",
		"mysql://u:s3cret@h/db?tls=false&ca=x", "mysql://u:s3cret@h/db#x", "mysql:s3cret", "mysql://h/db?defaults-file=/nowhere", "mysql://u:a?s3cret@h/db",
	} {
		if _, err := parse(t, address); !errors.Is(err, backend.ErrInvalid) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", address, err)
		}
	}
	for address, want := range map[string]string{
		"mysql://u:s3cret@h/db": "mysql://h:3306/db", "mysql:///db?socket=/run/s": "mysql:///db?socket=/run/s",
		"mysql://u:s3cret@h/db?mode=optimistic&cas=updated_at": "mysql://h:3306/db?mode=optimistic&cas=updated_at",
	} {
		o, err := parse(t, address)
		if got := New(o).Limits().Address; err != nil || got != want {
			t.Errorf("%s is shown as %s, want %s", address, got, want)
		}
	}
}

// parse parses a URL that net/url may already refuse.
func parse(t *testing.T, address string) (Options, error) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		return Options{}, invalid("it cannot be read")
	}
	return ParseURL(u)
}

func TestSocketAndTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	certificate(t, cert, key)
	server := mysqltest.Start(t, "--ssl-cert="+cert, "--ssl-key="+key, "--require-secure-transport=ON")
	for _, mode := range modes {
		for what, address := range map[string]string{
			"TLS":    server.URL("d") + "?ca=" + cert + "&server-name=localhost&" + mode,
			"socket": "mysql://dlock:" + mysqltest.EscapedPassword + "@/d?socket=" + server.Socket() + "&" + mode,
		} {
			b := use(t, address)
			h := backendtest.MustAcquire(t, b, exclusive("j"))
			w := backendtest.Wait(t, use(t, address), exclusive("j"))
			if _, err := h.Renew(t.Context()); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			backendtest.MustRelease(t, h)
			backendtest.MustRelease(t, w.Hold(t))
		}
	}
	for _, options := range []string{"", "?tls=true", "?ca=" + cert + "&server-name=other"} {
		if _, err := use(t, server.URL("d")+options).Acquire(t.Context(), backendtest.NoWait(exclusive("j"))); err == nil {
			t.Errorf("%q gets in", options)
		}
	}
}

// certificate makes one for localhost that is its own authority.
func certificate(t *testing.T, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
