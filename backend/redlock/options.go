package redlock

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/redis"
)

// Options place a Backend.
type Options struct {
	Namespace string
	Nodes     []redis.Options // one server each

	Warn   func(msg string) // is told what endangers the lock; may be nil
	Detail func(msg string) // is told which servers are done without; may be nil

	encrypted bool
}

// Schemes lists the URL schemes of this service. A final s is TLS.
var Schemes = []string{schemePlain, schemeEncrypted}

const (
	schemePlain     = "redlock"
	schemeEncrypted = "redlocks"

	fewest = 3 // servers: two do not work on without one of them
)

// ParseURL reads
//
//	redlock://[user:password@]host[:6379],[user:password@]host[:6379],…[/db]
//	redlocks://…                                  the same with TLS
//
// with the options of redis:// and rediss:// but ?replicas. A server without a user and a
// password of its own has those of the first. u.Host is the whole list. An error is
// backend.ErrInvalid and shows no part of the URL that may be secret.
func ParseURL(u *url.URL) (Options, error) {
	o := Options{encrypted: u.Scheme == schemeEncrypted}
	if u.Opaque != "" || u.Fragment != "" {
		return o, invalid("it is redlock://host:port,host:port,host:port/db; a # or %% in a password is written %%23 or %%25")
	}
	hosts := strings.Split(u.Host, ",")
	if len(hosts) < fewest {
		return o, invalid("redlock:// names three independent servers at least, as in redlock://one,two,three; one server is redis://")
	}
	var known []string
	for _, host := range hosts {
		node, err := o.node(u, host)
		if err != nil {
			return o, err
		}
		if slices.Contains(known, node.Addrs[0]) {
			return o, invalid("%s stands in it twice, and one server has one vote", node.Addrs[0])
		}
		known = append(known, node.Addrs[0])
		o.Nodes = append(o.Nodes, node)
	}
	return o, nil
}

// node reads what the URL says of one server.
func (o *Options) node(list *url.URL, host string) (redis.Options, error) {
	u := *list
	u.Scheme, u.Host = "redis", host
	if o.encrypted {
		u.Scheme = "rediss"
	}
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		own, err := url.Parse("redis://" + host[:at+1] + "host")
		if err != nil {
			return redis.Options{}, invalid("a password in it cannot be read: a @ , / ? # or %% is written %%40 %%2C %%2F %%3F %%23 or %%25")
		}
		u.User, u.Host = own.User, host[at+1:]
	}
	opts, err := redis.ParseURL(&u)
	if err == nil && opts.Replicas > 0 {
		err = invalid("?replicas is for redis://; here a majority of independent servers is what counts")
	}
	return opts, err
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w backend URL: %s", backend.ErrInvalid, fmt.Sprintf(format, args...))
}

// address names the service without secrets.
func (o *Options) address() string {
	u := url.URL{Scheme: schemePlain}
	if o.encrypted {
		u.Scheme = schemeEncrypted
	}
	var hosts []string
	for _, n := range o.Nodes {
		hosts = append(hosts, n.Addrs[0])
		if n.DB != 0 {
			u.Path = fmt.Sprintf("/%d", n.DB)
		}
	}
	u.Host = strings.Join(hosts, ",")
	return u.String()
}
