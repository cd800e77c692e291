package mysql

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/record"
)

func FuzzParseURL(f *testing.F) {
	backendtest.URLs(f, Schemes, func(u *url.URL) (string, error) {
		o, err := ParseURL(u)
		return o.address(), err
	})
}

// FuzzNote: what a waiter says of itself is read again, cannot leave its comment, and has
// nothing that the client library would take for a value's place.
func FuzzNote(f *testing.F) {
	f.Add("ns", "a */ DROP TABLE x; -- ?", "root", "it's `#1`", int64(5))
	f.Add("", "\U0001F512\u2028\x7f", "\x1b[31m", "/*! x */", int64(1e15))
	f.Fuzz(func(t *testing.T, ns, name, user, reason string, since int64) {
		if since <= 0 || backend.CheckName(name) != nil || ns != "" && backend.CheckName(ns) != nil {
			return
		}
		b := &Backend{opts: Options{Namespace: ns}}
		id, err := b.lock(name)
		if err != nil {
			t.Fatal(err)
		}
		owner := backend.Owner{Kind: backend.Run, User: strings.ToValidUTF8(user, ""), Reason: strings.ToValidUTF8(reason, ""), PID: 7}
		c := &contender{b: b, id: id, req: backend.Request{Mode: backend.Mode{Kind: backend.Slots, N: 3}, Owner: owner}}
		comment := c.note(record.Time(since))
		inside := strings.TrimSuffix(strings.TrimPrefix(comment, "/* "), " */")
		if strings.ContainsAny(inside, "?*'`#;") || strings.Contains(inside, "--") || strings.ContainsFunc(inside, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
			t.Errorf("%q", comment)
		}
		for _, door := range []string{"", id.door} {
			n, ok := readNote("SELECT "+comment+" GET_LOCK('x', 5)", door)
			if !ok || n.NS != ns || n.Name != name || n.Mode != c.req.Mode || n.Since != record.Time(since) || n.Owner.User != owner.User || n.Owner.Reason != owner.Reason {
				t.Errorf("%q reads as %+v, %v", comment, n, ok)
			}
		}
	})
}

// FuzzRow: a row with a token is a lock that somebody holds, whatever else stands in it,
// and can be shown.
func FuzzRow(f *testing.F) {
	f.Add("t", `[{"token":"t","mode":{"kind":"exclusive"},"owner":{"kind":"run"}}]`, int64(1e15), int64(1e15), int64(30e6), "5")
	f.Add("*", `[{"token":"a","expires":9223372036854775807,"since":-9223372036854775808},{}]`, int64(1e15), int64(-9e18), int64(-1), "x")
	f.Add("t", `{`, int64(1), int64(9e18), int64(9e18), "18446744073709551615")
	f.Add("", `[{}]`, int64(1), int64(1), int64(1), "0")
	f.Add("t", `null`, int64(0), int64(253402214400e6), int64(0), "-1")
	f.Fuzz(func(t *testing.T, token, holders string, now, at, ttl int64, version string) {
		s := &session{b: &Backend{}}
		v := values{now, int64(3), version, version, at, token, holders, at, at, ttl, "j"}
		st, err := s.state(v)
		if err != nil || (len(st.Holders) > 0) != (token != "") {
			t.Fatalf("%q, %q: %+v, %v", token, holders, st, err)
		}
		for _, h := range st.dress(st.Status("j", st.now).Holders) {
			if h.Held < 0 || !h.Leased || h.Owner.Kind == backend.Foreign && h.Token != "" {
				t.Errorf("%q, %q: %+v", token, holders, h)
			}
		}
	})
}

// FuzzDefaults: of any option file, what stands in the section is read; and no error tells
// of what is in it.
func FuzzDefaults(f *testing.F) {
	for _, s := range []string{"[client]\npassword=hunter2\n", "[client]\nuser = \"a b\"\n[x]\nuser=c", "[client-mariadb]\nssl_ca='x", "[client\n=", "\xff\x00", "!include x\n[client]\nport"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "my.cnf")
		if err := os.WriteFile(file, []byte("[client]\npassword = hunter2\n[x]\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readDefaults(file)
		if err != nil && strings.Contains(err.Error(), "hunter2") || err == nil && got["password"] == "" && !strings.Contains(text, "password") {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	})
}
