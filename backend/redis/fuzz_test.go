package redis

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
)

func FuzzParseURL(f *testing.F) {
	backendtest.URLs(f, Schemes, func(u *url.URL) (string, error) {
		o, err := ParseURL(u)
		return o.address(), err
	})
}

// FuzzReply: whatever a script answers, JSON here, is a state that can be shown, or an
// error of ours. A time that is known stays so, however long it is.
func FuzzReply(f *testing.F) {
	for _, s := range []string{
		`["state", 5, 0, "7", [["t","run","exclusive",0,"7",10,2000,"rt","{\"user\":\"u\"}",3]], [["run","slots",3,50,"{}","w",9]]]`,
		`["state", 5, 0, "7", [["t","","",0,"7",10,9000000000000000000,"","x"]], [[]]]`, `["slots", 1, 3]`, `["mode",1,"shared",-1]`,
		`["state",1,2,"3",[null,1,"x",[[]]],{"a":1}]`, `[]`, `["held"]`, `"x"`, `["withdrawn",2]`, `["\u001b",2]`,
		`["state",1,2,"3",[["t","run","shared",0,"1",9223372036854775807,-1,"","{\"pid\":1e99}"],["t","run","shared",0,"1",-9223372036854775807,5]],[]]`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parse(values(text))
		if err == nil {
			err = r.refusal()
		}
		node := nodeStatus(answer{r, nil})
		if err != nil {
			known := errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrInvalid) || errors.Is(err, backend.ErrUnavailable) ||
				errors.Is(err, backend.ErrDenied) || errors.Is(err, backend.ErrRevoked)
			if !known || node.Err == nil || strings.ContainsFunc(err.Error(), unicode.IsControl) {
				t.Errorf("%s: %v, %v", text, err, node.Err)
			}
			return
		}
		s := status("j", r)
		odd(r.list(4), "key")
		if len(s.Holders) != len(r.list(4)) || len(node.Holders) != len(s.Holders) || len(s.Waiters) != len(r.list(5)) || len(node.Waiters) != len(s.Waiters) {
			t.Errorf("%s: %+v, %+v", text, s, node)
		}
		for _, h := range s.Holders {
			if h.Leased != (h.Left >= 0) || h.Owner.Kind == "" {
				t.Errorf("%s: %+v", text, h)
			}
		}
		if !slices.IsSortedFunc(s.Holders, func(a, b backend.Holder) int { return cmp.Compare(b.Held, a.Held) }) {
			t.Errorf("%s is not in order: %+v", text, s.Holders)
		}
	})
}

// values are what the client library makes of a reply.
func values(text string) any {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return nil
	}
	var convert func(v any) any
	convert = func(v any) any {
		switch x := v.(type) {
		case json.Number:
			n, _ := x.Int64()
			return n
		case []any:
			for i := range x {
				x[i] = convert(x[i])
			}
		}
		return v
	}
	return convert(v)
}

// FuzzKeys: the name of a lock is found again in the key of its META, and two locks of
// whatever namespaces share no key.
func FuzzKeys(f *testing.F) {
	f.Add("dlock", "a", "dlock", "b", false)
	f.Add("", "a{b}", "", "a", true)
	f.Add("a", "b}:{c", "a:{b", "c", false)
	f.Add("", "dlock:{a}", "dlock", "a", false)
	f.Add("", "x:{y}:q", "x", "y", false)
	f.Add("", "x:{y}", "x", "y", false)
	f.Add("", "{}a", "", "{", true)
	f.Add("", "a:raw", "dlock", "a", false)
	f.Fuzz(func(t *testing.T, ns1, name1, ns2, name2 string, cluster bool) {
		all := func(ns, name string) lockKeys {
			b := &Backend{opts: Options{Namespace: ns, Cluster: cluster}}
			k, err := b.keys(name, "t")
			if err != nil || ns != "" && backend.CheckName(ns) != nil {
				return nil
			}
			if got, ok := b.nameOf(k[keyMeta]); !ok || got != name {
				t.Errorf("%q %q has %q, which reads as %q, %v", ns, name, k[keyMeta], got, ok)
			}
			for _, key := range k[:keyTomb+1] {
				if cluster && hashTag(key) != hashTag(k[keyLock]) {
					t.Errorf("%q and %q are in two slots", key, k[keyLock])
				}
			}
			return k[:keyTomb+1]
		}
		first, second := all(ns1, name1), all(ns2, name2)
		for _, key := range first {
			if (ns1 != ns2 || name1 != name2) && slices.Contains(second, key) {
				t.Errorf("%q %q and %q %q share %q", ns1, name1, ns2, name2, key)
			}
		}
	})
}
