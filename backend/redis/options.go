package redis

import (
	"cmp"
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

// Options place a Backend.
type Options struct {
	Namespace string

	Addrs  []string // host:port; one, or some of the sentinels or of the cluster's nodes
	Socket string   // path of a Unix socket, in place of Addrs
	Master string   // what the sentinels call the group; empty without sentinels

	Cluster bool
	DB      int

	Username, Password                 string
	SentinelUsername, SentinelPassword string

	TLS      *tls.Config // nil: no TLS
	Replicas int         // replicas that must have a take or a renewal before it counts

	Warn func(msg string) // is told what endangers the lock; may be nil

	Scheme string // that messages show the server's address with, if not redis; rediss has one more s
}

// The default ports.
const (
	serverPort   = "6379"
	sentinelPort = "26379"
)

// The schemes that ParseURL reads. A second s is TLS.
const (
	schemeUnix      = "redis+unix"
	suffixSentinel  = "+sentinel"
	suffixCluster   = "+cluster"
	schemePlain     = "redis"
	schemeEncrypted = "rediss"
)

// Schemes lists the URL schemes of this service.
var Schemes = []string{
	schemePlain, schemeEncrypted, schemeUnix, schemePlain + suffixSentinel, schemeEncrypted + suffixSentinel,
	schemePlain + suffixCluster, schemeEncrypted + suffixCluster,
}

// ParseURL reads
//
//	redis://[user:password@]host[:6379][/db]
//	rediss://…                                  the same with TLS
//	redis+unix://[user:password@]/path/of/socket[?db=N]
//	redis+sentinel://[user:password@]host[:26379][,host…]/master[/db]
//	redis+cluster://[user:password@]host[:6379][,host…]
//
// with ?replicas=N, for TLS ?ca=FILE, ?cert=FILE&key=FILE and ?server-name=NAME, and
// for sentinels that want a password of their own ?sentinel-user and ?sentinel-password.
// An error is backend.ErrInvalid and shows no part of the URL that may be secret.
func ParseURL(u *url.URL) (Options, error) {
	var o Options
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
	if u.Opaque != "" || u.Fragment != "" {
		return o, invalid("a Redis URL is redis://host:port/db; a # or %% in a password is written %%23 or %%25")
	}
	kind := strings.TrimPrefix(strings.TrimPrefix(u.Scheme, schemePlain), "s")
	encrypted := strings.HasPrefix(u.Scheme, schemeEncrypted)
	if err := o.place(kind, u); err != nil {
		return o, err
	}
	q, err := backend.URLOptions(u, "db", "replicas", "ca", "cert", "key", "server-name", "sentinel-user", "sentinel-password")
	if err != nil {
		return o, err
	}
	return o, o.query(q, encrypted)
}

// place reads where the servers are.
func (o *Options) place(kind string, u *url.URL) (err error) {
	path := strings.Trim(u.Path, "/")
	switch kind {
	case "":
		if o.Addrs, err = addrs(u.Host, serverPort); err == nil && len(o.Addrs) > 1 {
			return invalid("redis:// names one server; several are redis+sentinel://, redis+cluster:// or redlock://")
		}
		if path != "" {
			return errorsFirst(err, o.database(path))
		}
	case strings.TrimPrefix(schemeUnix, schemePlain):
		if err := backend.CheckURLPath(u); err != nil {
			return err
		}
		if u.Host != "" || u.Path == "" {
			return invalid("a Unix socket is redis+unix:///path/of/socket")
		}
		o.Socket = u.Path
	case suffixSentinel:
		if err := backend.CheckURLPath(u); err != nil {
			return err
		}
		o.Addrs, err = addrs(u.Host, sentinelPort)
		master, db, hasDB := strings.Cut(path, "/")
		if o.Master = master; master == "" {
			return invalid("sentinels are redis+sentinel://host:26379,host:26379/MASTER, where MASTER is what they call the group")
		}
		if hasDB {
			return errorsFirst(err, o.database(db))
		}
	case suffixCluster:
		o.Cluster = true
		if o.Addrs, err = addrs(u.Host, serverPort); path != "" {
			return invalid("a cluster has no database numbers")
		}
	default:
		return invalid("unknown kind of Redis URL; known: %s", strings.Join(Schemes, " "))
	}
	return err
}

func errorsFirst(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// query reads the options behind the question mark.
func (o *Options) query(q map[string]string, encrypted bool) (err error) {
	o.SentinelUsername, o.SentinelPassword = q["sentinel-user"], q["sentinel-password"]
	if v, ok := q["db"]; ok {
		if err := o.database(v); err != nil {
			return err
		}
	}
	if v, ok := q["replicas"]; ok {
		if o.Replicas, err = count("replicas", v); err != nil {
			return err
		}
	}
	ca, cert, key, serverName := q["ca"], q["cert"], q["key"], q["server-name"]
	switch {
	case o.Cluster && o.DB != 0:
		return invalid("a cluster has no database numbers")
	case !encrypted && ca+cert+key+serverName != "":
		return invalid("?ca, ?cert, ?key and ?server-name need TLS: rediss:// in place of redis://")
	case (cert == "") != (key == ""):
		return invalid("?cert and ?key go together")
	case encrypted:
		o.TLS, err = tlsConfig(ca, cert, key, serverName)
	}
	return err
}

func (o *Options) database(s string) (err error) {
	o.DB, err = count("db", s)
	return err
}

// count reads a number of the URL. The text is not shown: it may be part of a password
// that should have been escaped.
func count(what, s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, invalid("%s in a Redis URL is a number; a / in a password is written %%2F", what)
	}
	return int(n), nil
}

// addrs reads a list of hosts with ports.
func addrs(hosts, port string) ([]string, error) {
	var list []string
	for _, h := range strings.Split(hosts, ",") {
		u := url.URL{Host: h}
		name, p := u.Hostname(), u.Port()
		if p == "" && strings.LastIndex(h, ":") <= strings.LastIndex(h, "]") {
			p = port
		}
		if _, err := strconv.ParseUint(p, 10, 16); name == "" || err != nil {
			return nil, invalid("a Redis URL names a host, and maybe a port, as in redis://localhost:6379")
		}
		list = append(list, net.JoinHostPort(name, p))
	}
	return list, nil
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

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w backend URL: %s", backend.ErrInvalid, fmt.Sprintf(format, args...))
}

// address names the service without secrets.
func (o *Options) address() string {
	scheme := cmp.Or(o.Scheme, schemePlain)
	if o.TLS != nil {
		scheme += "s"
	}
	u := url.URL{Scheme: scheme, Host: strings.Join(o.Addrs, ",")}
	db := ""
	if o.DB != 0 {
		db = "/" + strconv.Itoa(o.DB)
	}
	switch {
	case o.Socket != "":
		u.Scheme = schemeUnix
		backend.SetURLPath(&u, o.Socket)
		if o.DB != 0 {
			u.RawQuery = "db=" + strconv.Itoa(o.DB)
		}
	case o.Master != "":
		u.Scheme = scheme + suffixSentinel
		backend.SetURLPath(&u, "/"+o.Master+db)
	case o.Cluster:
		u.Scheme = scheme + suffixCluster
	default:
		u.Path = db
	}
	return u.String()
}

// hasPort tells whether an address names that port.
func hasPort(addr, port string) bool {
	_, p, err := net.SplitHostPort(addr)
	return err == nil && p == port
}
