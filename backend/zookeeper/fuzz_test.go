package zookeeper

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/line"
)

func FuzzParseURL(f *testing.F) {
	backendtest.URLs(f, []string{schemePlain, schemeEncrypted}, func(u *url.URL) (string, error) {
		o, err := ParseURL(u)
		return o.address(), err
	})
}

// FuzzPlaces: any children of a lock's node make a line, in order, in which none stands
// twice; and what stands there under our name can be made again.
func FuzzPlaces(f *testing.F) {
	const id = "0123456789abcdef0123456789abcdef"
	for _, s := range []string{
		"_c_" + id + "-lock-0000000004 _c_" + id + "__lock__0000000005", "_c_" + id + "-lock-0000000004", "_t_" + id + "-s-lock-0000000001 _t_" + id + "__lock__0000000002",
		"_d_" + id + "-n3-__WRIT__0000000009", "_c_" + id + "-n99999999999999999999-__WRIT__0000000009", "_c_" + id + "-__READ__-2147483648", "_c_" + id + "-n0-__WRIT__0000000001",
		"x-lock-0000000001 a__rlock__0000000001 b__READ__0000000001 lock-lock-0000000001 _now_0000000001", "_c_" + id + "-n3-__READ__0000000001",
		"_c_" + id + "-lock-0000000004 _c_" + id + "-s-lock-0000000004 _c_" + id + "__lock__0000000005",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		nodes := strings.Fields(text)
		slices.Sort(nodes)
		nodes = slices.Compact(nodes) // as on a server
		list := parse(nodes)
		seen := map[string]bool{}
		for i, p := range list {
			if seen[p.node] || !slices.Contains(nodes, p.node) {
				t.Errorf("%q: %q in %+v", nodes, p.node, list)
			}
			seen[p.node] = true
			if i > 0 && list[i-1].seq > p.seq {
				t.Errorf("%q is not in order: %+v", nodes, list)
			}
			if p.token == "" {
				continue
			}
			if !isToken(p.token) || !p.mode.Valid() {
				t.Errorf("%q: %+v", nodes, p)
			}
			again := parse(p.as(tail).nodes())
			if len(again) != 1 || again[0].mode != p.mode || again[0].token != p.token || again[0].seq != p.seq || !again[0].leased() {
				t.Errorf("%q: %+v as a tail is %+v", nodes, p, again)
			}
		}
		if n := line.Holders(contenders(list)); len(list) > 0 && n == 0 {
			t.Errorf("%q: nobody holds", nodes)
		}
	})
}

// FuzzNode: whatever a node holds, its times are not below zero, and it has an owner.
func FuzzNode(f *testing.F) {
	for _, s := range []string{
		`{"token":"t","ttl_ms":10000,"owner":{"kind":"run"}}`, ``, `null`, `[]`, `{"ttl_ms":9e99}`, `{"ttl_ms":9223372036854775807}`, `{"until_ms":9223372036854775807}`,
		`{"since_ms":-9223372036854775808,"held":true}`, `{"ttl_ms":-1,"until_ms":-9223372036854775808}`, `{"fence":18446744073709551615}`,
	} {
		f.Add([]byte(s), int64(1e12), int64(1e12))
	}
	f.Add([]byte(`{}`), int64(-9e18), int64(9e18))
	f.Fuzz(func(t *testing.T, data []byte, mtime, now int64) {
		e, err := decode(data, &zk.Stat{Mtime: mtime, Ctime: mtime, Czxid: 5}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []place{{state: inLine}, {state: inLine, token: "t"}, {state: detached, token: "t"}, {state: tail, token: "t"}} {
			h := holder(p, e, now)
			if h.Held < 0 || h.Owner.Kind == "" || h.Fence == 0 || p.leased() && h.Left <= 0 {
				t.Errorf("%q of %v: %+v", data, p, h)
			}
		}
		if e.bad && (e.record != record{}) {
			t.Errorf("%q is bad, and yet %+v", data, e.record)
		}
		if e.TTL > 0 && (e.lasts() <= 0 || e.Until > mtime && mtime > 0 && e.lasts() < backend.Millis(e.Until-mtime)) {
			t.Errorf("%q lasts %v", data, e.lasts())
		}
	})
}

// FuzzNodeNames: the name of a lock is found again in its node, which is one that
// ZooKeeper takes and that counts for no contender; and no two locks share one.
func FuzzNodeNames(f *testing.F) {
	f.Add("", "a", "", "b")
	f.Add("a", "b/c", "a/b", "c")
	f.Add("", "zookeeper", "", ".")
	f.Add("", "x-lock-0000000001", "..", "\U0001F512")
	f.Add("%2F", "/", "/", "%2F")
	f.Add("", "a/x-lock-0000000001", "", "x-lock-0000000001")
	f.Fuzz(func(t *testing.T, ns1, name1, ns2, name2 string) {
		node := func(ns, name string) string {
			b := &Backend{opts: Options{Namespace: ns}}
			dir, err := b.dir(name)
			if err != nil || ns != "" && backend.CheckName(ns) != nil {
				return ""
			}
			last := dir[strings.LastIndexByte(dir, '/')+1:]
			if got, ok := b.lockName(last); !ok || got != name {
				t.Errorf("%q %q is %q, which reads as %q, %v", ns, name, dir, got, ok)
			}
			for level := range strings.SplitSeq(dir[1:], "/") {
				bad := func(r rune) bool {
					return unicode.IsControl(r) || r > 0xffff || r >= 0xe000 && r <= 0xf8ff || r >= 0xfff0
				}
				if level == "" || level == "." || level == ".." || strings.ContainsFunc(level, bad) || isPlace(level) || dir == "/zookeeper" {
					t.Errorf("%q %q is %q", ns, name, dir)
				}
			}
			return dir
		}
		one, other := node(ns1, name1), node(ns2, name2)
		if one != "" && one == other && (ns1 != ns2 || name1 != name2) {
			t.Errorf("%q %q and %q %q share %q", ns1, name1, ns2, name2, one)
		}
	})
}
