package backend

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// URLOptions reads the options behind the question mark of a backend URL: each is one of
// known, and stands there once, with a value. No value is shown, and no name that may be
// part of a password in which a ? was not escaped.
func URLOptions(u *url.URL, known ...string) (map[string]string, error) {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil { // what cannot be read must not be left out silently
		return nil, fmt.Errorf("%w backend URL: the options behind the ? cannot be read; a %% or ; in one is written %%25 or %%3B", ErrInvalid)
	}
	options := map[string]string{}
	for name, vs := range values {
		switch {
		case slices.Contains(known, name) && len(vs) == 1 && vs[0] != "":
			options[name] = vs[0]
		case slices.Contains(known, name):
			return nil, fmt.Errorf("%w backend URL: ?%s is to be given once, with a value", ErrInvalid, name)
		case strings.Contains(u.RawQuery, "@"):
			return nil, fmt.Errorf("%w backend URL: unknown option; a ? in a password is written %%3F", ErrInvalid)
		default:
			return nil, fmt.Errorf("%w backend URL: unknown option ?%s; known: %s", ErrInvalid, name, strings.Join(known, " "))
		}
	}
	return options, nil
}

// CheckURLPath refuses a path with an @ that is not escaped: the password of a URL may
// have a / that is not, so that what stands behind it looks like a path, which is shown.
func CheckURLPath(u *url.URL) error {
	if strings.Contains(u.EscapedPath(), "@") {
		return fmt.Errorf("%w backend URL: an @ behind the host; a / in a password is written %%2F, and an @ in the path %%40", ErrInvalid)
	}
	return nil
}

// SetURLPath sets a path such that CheckURLPath does not refuse it.
func SetURLPath(u *url.URL, path string) {
	u.Path = path
	u.RawPath = strings.ReplaceAll((&url.URL{Path: path}).EscapedPath(), "@", "%40")
}
