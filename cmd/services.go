package cmd

import (
	"net/url"
	"strings"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/file"
)

// scheme is one kind of backend URL.
type scheme struct {
	name string
	open func(u *url.URL, namespace string) (backend.Backend, error)
	// namespace is the default prefix of names; empty where the URL itself has one.
	namespace string
}

// schemes lists the lock services.
var schemes = []scheme{
	{name: "file", open: openFile},
}

func openFile(u *url.URL, namespace string) (backend.Backend, error) {
	opts, err := file.ParseURL(u)
	if err != nil {
		return nil, err
	}
	opts.Namespace = namespace
	return file.New(opts), nil
}

// openURL opens the service of a URL. The URL may hold a password, so no message
// shows it, nor what the parser says of it.
func (a *app) openURL(raw, source string) (backend.Backend, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, usageError("the URL that %s gives cannot be read (it is not shown, since it may hold a password); it looks like file:///dir", source)
	}
	var known []string
	for _, s := range a.schemes {
		if u.Scheme == s.name {
			namespace := s.namespace
			if a.place.namespaceSet {
				namespace = a.place.namespace
			}
			return s.open(u, namespace)
		}
		known = append(known, s.name+"://")
	}
	if u.Scheme == "" {
		return nil, usageError("the URL that %s gives has no scheme; a directory is named file:///dir", source)
	}
	return nil, usageError("unknown lock service %q in the URL that %s gives; known: %s", u.Scheme, source, strings.Join(known, " "))
}
