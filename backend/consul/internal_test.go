package consul

import (
	"path"
	"strings"
	"testing"
)

// FuzzKeys: two different namespaces and names never share a key, nor is one of them in
// the other's line; and no key is changed by the cleaning of paths.
func FuzzKeys(f *testing.F) {
	f.Add("a", "b/c", "a/b", "c")
	f.Add("j.dlock", "x", "j", "x")
	f.Add("", ".dlock", "", ".")
	f.Add("..", "%2E.", "..", "..")
	f.Fuzz(func(t *testing.T, ns1, name1, ns2, name2 string) {
		all := func(ns, name string) (list []string) {
			k, err := (&Backend{opts: Options{Prefix: "p", Namespace: ns}}).keys(name, "t")
			if err != nil {
				return nil
			}
			if got, ok := nameOf(strings.TrimSuffix(k.gate[strings.LastIndexByte(k.gate[:len(k.gate)-1], '/')+1:], "/")); !ok || got != name {
				t.Errorf("the name %q became %q", name, got)
			}
			return []string{k.lock(), k.entry(), k.contender("s")}
		}
		first, second := all(ns1, name1), all(ns2, name2)
		for _, a := range first {
			if path.Clean("/"+a) != "/"+a {
				t.Errorf("%q is not clean", a)
			}
			for _, b := range second {
				if (ns1 != ns2 || name1 != name2) && a == b {
					t.Errorf("%q %q and %q %q share %q", ns1, name1, ns2, name2, a)
				}
			}
		}
	})
}
