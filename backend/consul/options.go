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
	if err := backend.CheckURLPath(u); err != nil {
		return o, err
	}
	if err := o.path(u.Path); err != nil {
		return o, err
	}
	q, err := backend.URLOptions(u, "dc", "ns", "partition", "token-file", "ca", "cert", "key", "server-name")
	if err != nil {
		return o, err
	}
	return o, o.query(q)
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
		if backend.CheckName(level) != nil { // in JSON, what is no UTF-8 is another key
			return invalid("a level of a prefix is UTF-8 without control characters, of %d bytes at most", backend.MaxName)
		}
		if strings.HasSuffix(level, lineMark) {
			return invalid("a prefix that ends in %s is dlock's own", lineMark)
		}
	}
	return nil
}

// query reads the options behind the question mark.
func (o *Options) query(q map[string]string) error {
	c := &o.Config
	c.Datacenter, c.Namespace, c.Partition, c.TokenFile = q["dc"], q["ns"], q["partition"], q["token-file"]
	c.TLSConfig.CAFile, c.TLSConfig.CertFile, c.TLSConfig.KeyFile = q["ca"], q["cert"], q["key"]
	c.TLSConfig.Address = q["server-name"]
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
		backend.SetURLPath(&u, "/"+o.Prefix)
	}
	return u.String()
}
