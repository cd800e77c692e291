package cmd

import (
	"net/url"
	"strings"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/consul"
	"github.com/dlock/dlock/backend/file"
	"github.com/dlock/dlock/backend/mysql"
	"github.com/dlock/dlock/backend/redis"
	"github.com/dlock/dlock/backend/redlock"
	"github.com/dlock/dlock/backend/tair"
	"github.com/dlock/dlock/backend/zookeeper"
)

// scheme is one kind of backend URL.
type scheme struct {
	name string
	open func(*url.URL, setting) (backend.Backend, error)
	// namespace is the default prefix of names; empty where the URL itself has one.
	namespace string
}

// setting is what a service gets beside its URL.
type setting struct {
	namespace string
	chosen    bool // the namespace is not just the default
	warn      func(msg string)
	detail    func(msg string) // for --verbose
}

// schemes lists the lock services.
var schemes = []scheme{
	{name: "file", open: openFile},
	{name: "consul", open: openConsul, namespace: defaultNamespace},
	{name: "consuls", open: openConsul, namespace: defaultNamespace},
	{name: "mysql", open: openMySQL, namespace: defaultNamespace},
	{name: "redis", open: openRedis, namespace: defaultNamespace},
	{name: "rediss", open: openRedis, namespace: defaultNamespace},
	{name: "redis+unix", open: openRedis, namespace: defaultNamespace},
	{name: "redis+sentinel", open: openRedis, namespace: defaultNamespace},
	{name: "rediss+sentinel", open: openRedis, namespace: defaultNamespace},
	{name: "redis+cluster", open: openRedis, namespace: defaultNamespace},
	{name: "rediss+cluster", open: openRedis, namespace: defaultNamespace},
	{name: "redlock", open: openRedlock, namespace: defaultNamespace},
	{name: "redlocks", open: openRedlock, namespace: defaultNamespace},
	{name: "tair", open: openTair, namespace: defaultNamespace},
	{name: "tairs", open: openTair, namespace: defaultNamespace},
	{name: "zk", open: openZooKeeper, namespace: defaultNamespace},
	{name: "zks", open: openZooKeeper, namespace: defaultNamespace},
}

// defaultNamespace keeps our names apart from all else that a server holds.
const defaultNamespace = "dlock"

// openConsul puts locks right below the path of the URL where there is one, as
// `consul lock prefix/name` does.
func openConsul(u *url.URL, s setting) (backend.Backend, error) {
	opts, err := consul.ParseURL(u)
	if err != nil {
		return nil, err
	}
	if opts.Prefix == "" || s.chosen {
		opts.Namespace = s.namespace
	}
	opts.Warn = s.warn
	return consul.New(opts), nil
}

func openFile(u *url.URL, s setting) (backend.Backend, error) {
	opts, err := file.ParseURL(u)
	if err != nil {
		return nil, err
	}
	opts.Namespace = s.namespace
	return file.New(opts), nil
}

func openMySQL(u *url.URL, s setting) (backend.Backend, error) {
	opts, err := mysql.ParseURL(u)
	if err != nil {
		return nil, err
	}
	opts.Namespace, opts.Warn = s.namespace, s.warn
	return mysql.New(opts), nil
}

func openRedis(u *url.URL, s setting) (backend.Backend, error) {
	opts, err := redis.ParseURL(u)
	if err != nil {
		return nil, err
	}
	opts.Namespace, opts.Warn = s.namespace, s.warn
	return redis.New(opts), nil
}

func openRedlock(u *url.URL, s setting) (backend.Backend, error) {
	opts, err := redlock.ParseURL(u)
	if err != nil {
		return nil, err
	}
	opts.Namespace, opts.Warn, opts.Detail = s.namespace, s.warn, s.detail
	return redlock.New(opts), nil
}

func openTair(u *url.URL, s setting) (backend.Backend, error) {
	opts, err := tair.ParseURL(u)
	if err != nil {
		return nil, err
	}
	opts.Namespace, opts.Warn = s.namespace, s.warn
	return tair.New(opts), nil
}

// openZooKeeper puts locks right below the path of the URL where there is one.
func openZooKeeper(u *url.URL, s setting) (backend.Backend, error) {
	opts, err := zookeeper.ParseURL(u)
	if err != nil {
		return nil, err
	}
	if opts.Chroot == "" || s.chosen {
		opts.Namespace = s.namespace
	}
	opts.Warn = s.warn
	return zookeeper.New(opts), nil
}

// openURL opens the service of a URL. The URL may hold a password, so no message
// shows it, nor what the parser says of it.
func (a *app) openURL(raw, source string) (backend.Backend, error) {
	u, err := parseURL(raw)
	if err != nil {
		return nil, usageError("the URL that %s gives cannot be read (it is not shown, since it may hold a password); it looks like file:///dir or redis://host:6379", source)
	}
	var known []string
	for _, s := range a.schemes {
		if u.Scheme == s.name {
			set := setting{namespace: s.namespace, warn: func(msg string) { a.ui.warn("", "%s", msg) }}
			set.detail = func(msg string) { a.ui.detail("", "%s", msg) }
			if a.place.namespaceSet {
				set.namespace, set.chosen = a.place.namespace, true
			}
			return s.open(u, set)
		}
		known = append(known, s.name+"://")
	}
	if u.Scheme == "" {
		return nil, usageError("the URL that %s gives has no scheme; a directory is named file:///dir", source)
	}
	return nil, usageError("unknown lock service %q in the URL that %s gives; known: %s", u.Scheme, source, strings.Join(known, " "))
}

// parseURL parses a URL that may name several hosts, as in scheme://h1:1,h2:2/path,
// which net/url takes for one with a strange port.
func parseURL(raw string) (*url.URL, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	user, hosts := "", authority
	i := strings.LastIndexByte(authority, '@')
	if strings.HasPrefix(strings.ToLower(scheme), "redlock") { // where each host may have a user of its own
		if i = strings.IndexByte(authority, '@'); strings.Contains(authority[:max(i, 0)], ",") {
			i = -1
		}
	}
	if i >= 0 {
		user, hosts = authority[:i+1], authority[i+1:]
	}
	if !found || !strings.Contains(hosts, ",") {
		return url.Parse(raw)
	}
	for host := range strings.SplitSeq(hosts, ",") {
		host = host[strings.LastIndexByte(host, '@')+1:] // redlock reads its user, and says more
		if _, err := url.Parse("x://" + host); err != nil {
			return nil, err
		}
	}
	u, err := url.Parse(scheme + "://" + user + "hosts" + tail)
	if err == nil {
		u.Host = hosts
	}
	return u, err
}
