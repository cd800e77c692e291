package backendtest

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"unicode"

	"github.com/dlock/dlock/backend"
)

// Secret stands in every password that URLs makes.
const Secret = "hunter2"

// URLs fuzzes the reading of URLs with open, which gives back the address that messages
// show. No URL makes it panic; what it refuses is ErrInvalid; neither the error nor the
// address has anything of the password; and the address, read again, is itself.
func URLs(f *testing.F, schemes []string, open func(*url.URL) (address string, err error)) {
	for i := range schemes {
		for _, host := range []string{"h", "h:1", "[::1]:1", "h1,h2:2,h3", ""} {
			f.Add(uint8(i), "u", host, "", "")
		}
		for _, path := range []string{"/1", "/a/b", "/a@b", "/\xff", "/a\x01", "/a%41 b?", "//", "/..", "/main/3"} {
			f.Add(uint8(i), "", "h", path, "")
		}
		for _, query := range []string{
			"db=1", "replicas=1", "replicas=1;", "ca=%zz", "mode=optimistic&cas=updated_at", "socket=/a%26b%23", "recipe=rwlock",
			"auth=digest:a:b", "token-file=x", "x", "x=1&y@z", "network=ok", "cert=a", "tls=true", "server-name=s",
		} {
			f.Add(uint8(i), "", "h", "/1", query)
		}
		f.Add(uint8(i), "", "", "/s@x", "")
		f.Add(uint8(i), "", "", "/d", "socket=/a%26b%23%0A")
	}
	f.Fuzz(func(t *testing.T, scheme uint8, user, host, path, query string) {
		for h := range strings.SplitSeq(host, ",") {
			if u, err := url.Parse("x://" + h); err != nil || u.Host != h || strings.ContainsFunc(h, func(r rune) bool { return r > unicode.MaxASCII }) {
				return // what has read the URL refuses it, or shows it escaped
			}
		}
		u := &url.URL{Scheme: schemes[int(scheme)%len(schemes)], Host: host, RawQuery: query}
		if backend.SetURLPath(u, path); path != "" && path[0] != '/' {
			return
		}
		if user != "-" {
			u.User = url.UserPassword(user, "x"+Secret+"@/?#")
		}
		if strings.Contains(host+path+query, Secret) {
			return
		}
		address, err := open(u)
		if err != nil {
			if !errors.Is(err, backend.ErrInvalid) || strings.Contains(err.Error(), Secret) {
				t.Errorf("%v: %v", u, err)
			}
			return
		}
		if strings.Contains(address, Secret) {
			t.Errorf("%v is shown as %s", u, address)
		}
		if again, err := openAgain(address, open); err != nil || again != address {
			t.Errorf("%v is shown as %s, which is read as %s, %v", u, address, again, err)
		}
	})
}

// openAgain opens an address, which may name several hosts. What is no part of an address
// and yet needed, such as a file of certificates, is not there.
func openAgain(address string, open func(*url.URL) (string, error)) (string, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	hosts := rest[:strings.IndexAny(rest+"/", "/?#")]
	u, err := url.Parse(scheme + "://" + rest[len(hosts):])
	if err != nil {
		return "", err
	}
	u.Host = hosts
	return open(u)
}
