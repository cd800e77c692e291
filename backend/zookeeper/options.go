package zookeeper

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
)

// Recipe is whose nodes dlock shares a lock with.
type Recipe string

// The recipes.
const (
	Mutex     Recipe = ""       // Curator's InterProcessMutex and kazoo's Lock
	ReadWrite Recipe = "rwlock" // Curator's InterProcessReadWriteLock
)

// Options place a Backend.
type Options struct {
	Namespace string

	Addrs  []string // host:port
	Chroot string   // "/a/b", or empty
	Recipe Recipe

	AuthScheme, Auth string // as for AddAuth; empty without
	Open             bool   // nodes are for everybody, also with Auth

	TLS *tls.Config // nil: no TLS

	Warn func(msg string) // is told what the user should know; may be nil
}

// The schemes that ParseURL reads.
const (
	schemePlain     = "zk"
	schemeEncrypted = "zks"
)

const clientPort = "2181"

// ParseURL reads
//
//	zk://[user:password@]host[:2181][,host…][/chroot]
//	zks://…                                            the same with TLS
//
// with ?recipe=rwlock, ?auth=SCHEME:DATA in place of user and password, which are
// digest:user:password, ?acl=open, and for TLS ?ca=FILE, ?cert=FILE&key=FILE and
// ?server-name=NAME. An error is backend.ErrInvalid and shows no part of the URL that
// may be secret.
func ParseURL(u *url.URL) (Options, error) {
	var o Options
	if u.Opaque != "" || u.Fragment != "" {
		return o, invalid("a ZooKeeper URL is zk://host:port,host:port/chroot; a # or %% in a password is written %%23 or %%25")
	}
	if u.User != nil {
		password, _ := u.User.Password()
		o.AuthScheme, o.Auth = "digest", u.User.Username()+":"+password
	}
	var err error
	if o.Addrs, err = addrs(u.Host); err != nil {
		return o, err
	}
	if err := backend.CheckURLPath(u); err != nil {
		return o, err
	}
	if o.Chroot, err = chroot(u.Path); err != nil {
		return o, err
	}
	q, err := backend.URLOptions(u, "recipe", "auth", "acl", "ca", "cert", "key", "server-name")
	if err != nil {
		return o, err
	}
	return o, o.query(q, u.Scheme == schemeEncrypted)
}

// chroot reads the path of the URL, whose levels are nodes.
func chroot(path string) (string, error) {
	path = strings.TrimRight(path, "/")
	if path == "" {
		return "", nil
	}
	for level := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		plain := strings.ReplaceAll(level, "%", "")
		if level == "" || encode(plain, -1) != plain || strings.ContainsFunc(level, unicode.IsControl) {
			return "", invalid("the path is a node in ZooKeeper, whose levels cannot be empty, . or .., nor hold control characters or those outside the Unicode plane 0")
		}
	}
	if path == "/zookeeper" || strings.HasPrefix(path, "/zookeeper/") {
		return "", invalid("/zookeeper is ZooKeeper's own")
	}
	return path, nil
}

// query reads the options behind the question mark.
func (o *Options) query(q map[string]string, encrypted bool) (err error) {
	if o.Recipe = Recipe(q["recipe"]); o.Recipe != Mutex && o.Recipe != ReadWrite {
		return invalid("?recipe is rwlock, or left out")
	}
	if v, ok := q["auth"]; ok {
		if err := o.auth(v); err != nil {
			return err
		}
	}
	if v, ok := q["acl"]; ok {
		if o.Open = v == "open"; !o.Open {
			return invalid("?acl is open, or left out: what a user makes is for that user alone")
		}
	}
	ca, cert, key, serverName := q["ca"], q["cert"], q["key"], q["server-name"]
	switch {
	case !encrypted && ca+cert+key+serverName != "":
		return invalid("?ca, ?cert, ?key and ?server-name need TLS: zks:// in place of zk://")
	case (cert == "") != (key == ""):
		return invalid("?cert and ?key go together")
	case encrypted:
		o.TLS, err = tlsConfig(ca, cert, key, serverName)
	}
	return err
}

// auth reads SCHEME:DATA, which is not shown.
func (o *Options) auth(v string) error {
	scheme, data, ok := strings.Cut(v, ":")
	switch {
	case !ok || scheme == "" || data == "":
		return invalid("?auth is SCHEME:DATA, as in digest:user:password")
	case o.AuthScheme != "":
		return invalid("?auth and a user before the host exclude each other")
	}
	o.AuthScheme, o.Auth = scheme, data
	return nil
}

// addrs reads a list of hosts with ports.
func addrs(hosts string) ([]string, error) {
	var list []string
	for h := range strings.SplitSeq(hosts, ",") {
		u := url.URL{Host: h}
		name, p := u.Hostname(), u.Port()
		if p == "" && strings.LastIndex(h, ":") <= strings.LastIndex(h, "]") {
			p = clientPort
		}
		if _, err := strconv.ParseUint(p, 10, 16); name == "" || err != nil {
			return nil, invalid("a ZooKeeper URL names hosts, and maybe ports, as in zk://host1:2181,host2:2181")
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
	u := url.URL{Scheme: schemePlain, Host: strings.Join(o.Addrs, ",")}
	backend.SetURLPath(&u, o.Chroot)
	if o.TLS != nil {
		u.Scheme = schemeEncrypted
	}
	if o.Recipe != Mutex {
		u.RawQuery = "recipe=" + string(o.Recipe)
	}
	return u.String()
}

// acl is what our nodes allow: everything, to everybody or to the user alone.
func (o *Options) acl() []zk.ACL {
	if o.AuthScheme == "" || o.Open {
		return zk.WorldACL(zk.PermAll)
	}
	return zk.AuthACL(zk.PermAll)
}
