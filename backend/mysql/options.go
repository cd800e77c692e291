package mysql

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/dlock/dlock/backend"
)

// Mode is how an exclusive lock is taken.
type Mode string

// The modes. They use one row, and so exclude each other.
const (
	Table       Mode = "table"       // one statement that takes a free row
	Optimistic  Mode = "optimistic"  // read, then an update that compares what was read
	Pessimistic Mode = "pessimistic" // SELECT … FOR UPDATE in a transaction that stays open
)

// Options place a Backend.
type Options struct {
	Namespace string

	Addr               string // host:port
	Socket             string // path of a Unix socket, in place of Addr
	Database           string
	Username, Password string
	TLS                *tls.Config // nil: no TLS

	Mode     Mode
	ByUpdate bool // compare the row's time stamp, not its version

	Warn func(msg string) // is told what endangers the lock; may be nil
}

const (
	scheme      = "mysql"
	defaultPort = "3306"
)

// Schemes lists the URL schemes of this service.
var Schemes = []string{scheme}

// ParseURL reads
//
//	mysql://[user[:password]@]host[:3306]/database
//	mysql://[user[:password]@]/database?socket=/path/of/socket
//
// with ?mode=table|optimistic|pessimistic, ?cas=version|updated_at, ?defaults-file=FILE
// (the [client] section of a my.cnf, for what the URL does not name), and for TLS
// ?tls=true, ?ca=FILE, ?cert=FILE&key=FILE and ?server-name=NAME. An error is
// backend.ErrInvalid and shows no part of the URL that may be secret.
func ParseURL(u *url.URL) (Options, error) {
	o := Options{Mode: Table, Username: u.User.Username()}
	o.Password, _ = u.User.Password()
	if u.Opaque != "" || u.Fragment != "" {
		return o, invalid("a MySQL URL is mysql://user@host:3306/database; a # or %% in a password is written %%23 or %%25")
	}
	if err := backend.CheckURLPath(u); err != nil {
		return o, err
	}
	o.Database = strings.TrimPrefix(u.Path, "/")
	port := u.Port()
	// Those of the client library are not among them: clientFoundRows, for one, would make
	// every busy lock look free.
	q, err := backend.URLOptions(u, "mode", "cas", "socket", "defaults-file", "tls", "ca", "cert", "key", "server-name")
	if err != nil {
		return o, err
	}
	host := u.Hostname()
	o.Socket = q["socket"]
	if host != "" && o.Socket != "" {
		return o, invalid("a host and ?socket exclude each other")
	}
	if file := q["defaults-file"]; file != "" {
		if err := o.complete(file, &host, &port, q); err != nil {
			return o, err
		}
	}
	if o.Socket == "" {
		if o.Addr, err = addr(host, port); err != nil {
			return o, err
		}
	}
	if o.Database == "" || strings.Contains(o.Database, "/") {
		return o, invalid("a MySQL URL names a database, as in mysql://user@host:3306/database; a / in a password is written %%2F")
	}
	return o, o.choose(q)
}

func addr(host, port string) (string, error) {
	if port == "" {
		port = defaultPort
	}
	if _, err := strconv.ParseUint(port, 10, 16); host == "" || err != nil || strings.Contains(host, ",") {
		return "", invalid("a MySQL URL names one host, and maybe a port, as in mysql://user@localhost:3306/database")
	}
	return net.JoinHostPort(host, port), nil
}

// choose reads what is not a place.
func (o *Options) choose(q map[string]string) (err error) {
	switch m := Mode(q["mode"]); m {
	case "":
	case Table, Optimistic, Pessimistic:
		o.Mode = m
	default:
		return invalid("?mode is table, optimistic or pessimistic")
	}
	switch q["cas"] {
	case "", "version":
	case "updated_at":
		o.ByUpdate = true
	default:
		return invalid("?cas is version or updated_at")
	}
	if q["cas"] != "" && o.Mode != Optimistic {
		return invalid("?cas belongs to ?mode=optimistic")
	}
	return o.encrypt(q)
}

// encrypt reads what concerns TLS.
func (o *Options) encrypt(q map[string]string) (err error) {
	ca, cert, key, serverName := q["ca"], q["cert"], q["key"], q["server-name"]
	on := ca+cert+key+serverName != ""
	switch q["tls"] {
	case "":
	case "true":
		on = true
	case "false":
		if on {
			return invalid("?tls=false and ?ca, ?cert, ?key, ?server-name exclude each other")
		}
	default:
		return invalid("?tls is true or false")
	}
	switch {
	case (cert == "") != (key == ""):
		return invalid("?cert and ?key go together")
	case on && serverName == "" && o.Addr != "":
		serverName, _, _ = net.SplitHostPort(o.Addr)
	}
	if on {
		o.TLS, err = tlsConfig(ca, cert, key, serverName)
	}
	return err
}

// tlsConfig reads the files of certificates.
func tlsConfig(ca, cert, key, serverName string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: serverName}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, invalid("?ca: %v", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalid("?ca: %s holds no certificate", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, invalid("?cert and ?key: %v", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// complete reads the [client] section of a file such as ~/.my.cnf for what the URL does
// not say.
func (o *Options) complete(file string, host, port *string, q map[string]string) error {
	client, err := readDefaults(file)
	if err != nil {
		return invalid("?defaults-file: %v", err)
	}
	fill := func(to *string, name string) {
		if *to == "" {
			*to = client[name]
		}
	}
	fill(&o.Username, "user")
	fill(&o.Password, "password")
	fill(&o.Database, "database")
	if *host == "" && o.Socket == "" {
		fill(host, "host")
		if client["host"] == "" {
			fill(&o.Socket, "socket")
		}
	}
	fill(port, "port")
	for option, name := range map[string]string{"ca": "ssl-ca", "cert": "ssl-cert", "key": "ssl-key"} {
		if v := client[name]; v != "" && q[option] == "" {
			q[option] = v
		}
	}
	return nil
}

// readDefaults reads the [client] section of an option file. What cannot be read as a
// line of one is passed over, as MySQL's own programs do; no value is ever shown.
func readDefaults(file string) (map[string]string, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	client, section := map[string]string{}, ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "", line[0] == '#', line[0] == ';', line[0] == '!':
		case line[0] == '[':
			section = strings.Trim(line, "[] \t")
		case section == "client" || section == "client-mariadb":
			name, value, _ := strings.Cut(line, "=")
			client[strings.ReplaceAll(strings.TrimSpace(name), "_", "-")] = unquote(strings.TrimSpace(value))
		}
	}
	return client, lines.Err()
}

// unquote takes the quotes off a value.
func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '"' || s[0] == '\'') && s[len(s)-1] == s[0] {
		s = s[1 : len(s)-1]
	}
	return s
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w backend URL: %s", backend.ErrInvalid, fmt.Sprintf(format, args...))
}

// address names the service without secrets.
func (o *Options) address() string {
	u := url.URL{Scheme: scheme, Host: o.Addr}
	backend.SetURLPath(&u, "/"+o.Database)
	var q []string
	if o.Socket != "" {
		q = append(q, "socket="+strings.ReplaceAll(url.QueryEscape(o.Socket), "%2F", "/"))
	}
	if o.Mode != Table {
		q = append(q, "mode="+string(o.Mode))
	}
	if o.ByUpdate {
		q = append(q, "cas=updated_at")
	}
	u.RawQuery = strings.Join(q, "&")
	return u.String()
}
