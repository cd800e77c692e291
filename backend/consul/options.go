package consul

import (
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
)

// Options say where the locks are.
type Options struct {
	Config    api.Config // what the URL says; the rest comes from CONSUL_HTTP_* variables
	Prefix    string     // of keys, without slashes at its ends
	Namespace string     // dlock's, one more level
	Warn      func(string)
}

// ParseURL reads
//
//	consul://[:token@]host[:8500][/prefix]
//	consuls://…                              over HTTPS
//
// with ?token-file=FILE, ?dc=, ?ns= and ?partition=, and for TLS ?ca=FILE,
// ?cert=FILE&key=FILE and ?server-name=NAME. Without a host it is CONSUL_HTTP_ADDR's. An
// error is backend.ErrInvalid and shows no part of the URL that may be secret.
func ParseURL(u *url.URL) (Options, error) {
	var o Options
	if u.Opaque != "" || u.Fragment != "" {
		return o, invalid("a Consul URL is consul://host:8500/prefix; a # or %% in a token is written %%23 or %%25")
	}
	if strings.Contains(u.Host, ",") {
		return o, invalid("consul:// names one agent, which knows the servers")
	}
	if u.Host != "" {
		o.Config.Address = u.Host
		if u.Port() == "" {
			if strings.HasSuffix(u.Host, ":") {
				return o, invalid("the port is missing")
			}
			o.Config.Address = u.Host + ":8500"
		}
	}
	if u.Scheme == "consuls" {
		o.Config.Scheme = "https"
	}
	if password, has := u.User.Password(); has && u.User.Username() == "" {
		o.Config.Token = password
	} else if has {
		o.Config.HttpAuth = &api.HttpBasicAuth{Username: u.User.Username(), Password: password}
	} else if u.User.Username() != "" {
		return o, invalid("an ACL token stands behind a colon: consul://:TOKEN@host")
	}
	if err := o.path(u.Path); err != nil {
		return o, err
	}
	return o, o.query(u.Query())
}

// path reads the prefix of keys.
func (o *Options) path(path string) error {
	o.Prefix = strings.Trim(path, "/")
	if o.Prefix == "" {
		return nil
	}
	for _, level := range strings.Split(o.Prefix, "/") {
		if level == "" || level == "." || level == ".." {
			return invalid("a prefix has no empty levels, and none that are dots")
		}
		if strings.HasSuffix(level, lineMark) {
			return invalid("a prefix that ends in %s is dlock's own", lineMark)
		}
	}
	return nil
}

// query reads the options behind the question mark.
func (o *Options) query(values url.Values) error {
	c := &o.Config
	known := map[string]*string{
		"dc": &c.Datacenter, "ns": &c.Namespace, "partition": &c.Partition, "token-file": &c.TokenFile,
		"ca": &c.TLSConfig.CAFile, "cert": &c.TLSConfig.CertFile, "key": &c.TLSConfig.KeyFile, "server-name": &c.TLSConfig.Address,
	}
	for name, vs := range values {
		field := known[name]
		switch {
		case strings.Contains(name, "@"): // not shown: it may be part of a token
			return invalid("a ? in a token is written %%3F")
		case field == nil:
			return invalid("unknown option ?%s; known: dc ns partition token-file ca cert key server-name", name)
		case len(vs) != 1 || vs[0] == "":
			return invalid("?%s is to be given once, with a value", name)
		}
		*field = vs[0]
	}
	if tls := c.TLSConfig; (tls.CertFile == "") != (tls.KeyFile == "") {
		return invalid("?cert and ?key go together")
	} else if c.Scheme == "" && tls.CAFile+tls.CertFile+tls.Address != "" {
		return invalid("?ca, ?cert, ?key and ?server-name need TLS: consuls:// in place of consul://")
	}
	if c.TokenFile != "" && c.Token != "" {
		return invalid("?token-file and a token in the URL exclude each other")
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w backend URL: %s", backend.ErrInvalid, fmt.Sprintf(format, args...))
}

// address names the service without secrets.
func (o *Options) address() string {
	u := url.URL{Scheme: "consul", Host: o.Config.Address}
	if o.Config.Scheme == "https" {
		u.Scheme = "consuls"
	}
	if u.Host == "" {
		u.Host = "127.0.0.1:8500"
		if env := os.Getenv(api.HTTPAddrEnvName); env != "" {
			if _, rest, ok := strings.Cut(env, "://"); ok {
				env = rest
			}
			u.Host = env[strings.LastIndexByte(env, '@')+1:]
		}
	}
	if o.Prefix != "" {
		u.Path = "/" + o.Prefix
	}
	return u.String()
}
