package backend_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
)

// FuzzURLOptions: what is read is known and stands in the URL once; an error shows nothing
// of a password that was cut in two by a ?.
func FuzzURLOptions(f *testing.F) {
	for _, s := range []string{"", "a=1", "a=1&b=2", "a=1&a=2", "a=", "c=1", "a=1;", "a=%zz", "hunter2&x@host", "hunter2=x@host", "a=x@y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		got, err := backend.URLOptions(&url.URL{RawQuery: query}, "a", "b")
		if err != nil {
			if !errors.Is(err, backend.ErrInvalid) || strings.Contains(query, "@") && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%q: %v", query, err)
			}
			return
		}
		values := url.Values{}
		for name, v := range got {
			values.Set(name, v)
		}
		if all, err := url.ParseQuery(query); err != nil || all.Encode() != values.Encode() {
			t.Errorf("%q is read as %v", query, got)
		}
	})
}

// FuzzURLPath: any path can be set, and is then what a reader of the URL finds.
func FuzzURLPath(f *testing.F) {
	for _, s := range []string{"/a", "/a@b", "/%40", "/\xff", "/a b?#", "/a%2Fb", "//"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		if !strings.HasPrefix(path, "/") {
			return
		}
		u := &url.URL{Scheme: "x", Host: "h"}
		backend.SetURLPath(u, path)
		again, err := url.Parse(u.String())
		if err != nil || again.Path != path || backend.CheckURLPath(again) != nil {
			t.Errorf("%q became %v, and then %q, %v", path, u, again.Path, err)
		}
	})
}
