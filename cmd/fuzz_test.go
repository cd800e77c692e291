package cmd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/dlock/dlock/backend"
)

// FuzzOpenURL: whatever --backend says, it opens a service or is refused; and the password
// in it is shown neither by the refusal nor by the address, however it was mistyped.
func FuzzOpenURL(f *testing.F) {
	const secret = "hunter2"
	for i := range newApp(nil, io.Discard, io.Discard).schemes {
		for _, end := range []string{"h", "h1,h2,h3", "h/1", "h/a/b?db=1", "/d?socket=/s", "h1:x,h2,h3", "h?x", "h#x"} {
			f.Add(uint8(i), "", "", end)
		}
		f.Add(uint8(i), "@/", "", "h")
		for _, around := range [][2]string{
			{"%", ""}, {"1/", ""}, {"1?", ""}, {"1?", "=x"}, {"1?", "&x"}, {"1#", ""}, {"1/x?", "&"}, {"x@y/", ""}, {"1?a&", "="}, {"", "["},
		} {
			f.Add(uint8(i), around[0], around[1], "h/db")
		}
	}
	f.Fuzz(func(t *testing.T, scheme uint8, before, after, end string) {
		a := newApp(nil, io.Discard, io.Discard)
		if strings.ContainsAny(before, ",=") || strings.Contains(before+after+end, secret) {
			return // an unescaped comma makes hosts of it, and = what --backend calls a file
		}
		raw := a.schemes[int(scheme)%len(a.schemes)].name + "://u:" + before + secret + after + "@" + end
		b, err := a.openURL(raw, "--backend")
		if err != nil {
			if e := a.explain("", err); e.code != exitUsage || strings.Contains(e.msg+e.hint, secret) {
				t.Errorf("%s: %v", raw, err)
			}
			return
		}
		if address := b.Limits().Address; strings.Contains(address, secret) {
			t.Errorf("%s is shown as %s", raw, address)
		}
	})
}

// FuzzParseURL: each of several hosts is one that a URL can have; and as everywhere, the
// scheme may be in capitals.
func FuzzParseURL(f *testing.F) {
	for _, s := range []string{
		"redis://h", "zk://h1,h2/x", "zk://u:p@h1:1,[::1]:2", "redlock://u:p@h1,:q@h2,h3/1?x", "redlock://u:p@h1,u:p@h2", "zk://a b,c", "zk://h1,h2:x", "x", "://", "zk://u:p,q@h1,h2", "#://, 0", "redlock://u:%zz@h1,h2,h3",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := parseURL(raw)
		if err != nil {
			return
		}
		for host := range strings.SplitSeq(u.Host, ",") {
			host = host[strings.LastIndexByte(host, '@')+1:]
			if _, err := url.Parse("x://" + host); err != nil && strings.Contains(u.Host, ",") {
				t.Errorf("%q has the host %q: %v", raw, host, err)
			}
		}
		if capital, err := parseURL(strings.ToUpper(u.Scheme) + raw[len(u.Scheme):]); err != nil || capital.String() != u.String() {
			t.Errorf("%q is %v, and in capitals %v, %v", raw, u, capital, err)
		}
	})
}

// FuzzInspect: what others wrote into a lock service steers no terminal and adds no line,
// whatever the format, and JSON has all of it.
func FuzzInspect(f *testing.F) {
	const evil = "a\x1b[2J\u009b31m\u202e\n\r\xff\"\\\x7f"
	f.Add("j", evil, evil, evil, evil, int64(-1), 80)
	f.Add("a\u202eb", "t", "root", "./x", "p", int64(1e18), 20)
	f.Add("日本", "日本日本", "ü", "", "", int64(0), 0)
	f.Fuzz(func(t *testing.T, name, token, user, command, problem string, n int64, columns int) {
		if backend.CheckName(name) != nil {
			return // no service lists it
		}
		owner := backend.Owner{Kind: backend.OwnerKind(user), User: user, Host: name, Command: command, Reason: problem, PID: int(n)}
		s := backend.Status{
			Name: name, Fence: uint64(n), Problems: []string{problem},
			Holders: []backend.Holder{
				{Token: token, Owner: owner, Mode: backend.Mode{Kind: backend.Kind(command), N: int(n)}, Held: time.Duration(n), Leased: n&1 == 0, Left: time.Duration(n)},
				{Token: token, Owner: backend.Owner{Kind: backend.Detached, User: user}, Mode: backend.Mode{Kind: backend.Slots, N: int(n)}, Tail: true},
			},
			Waiters: []backend.Waiter{{Owner: owner, Mode: backend.Mode{Kind: backend.Kind(token)}, Waiting: time.Duration(n)}},
		}
		v := view{limits: backend.Limits{Address: url.PathEscape(problem)}, list: []backend.Status{s, {Name: name, Err: errors.New(problem)}}}
		sc := screen{columns: columns % 300}
		lines := map[string]int{}
		for what, print := range map[string]func(io.Writer) error{
			"table":      func(w io.Writer) error { return printTable(w, sc, v) },
			"cards":      func(w io.Writer) error { return printCards(w, sc, v) },
			"prometheus": func(w io.Writer) error { return printPrometheus(w, v) },
			"json":       func(w io.Writer) error { return printJSON(w, v, true) },
			"json line":  func(w io.Writer) error { return printJSON(w, v, false) },
			"message": func(w io.Writer) error {
				_, err := io.WriteString(w, jsonLine("", name, describeHolders(s.Holders, 1)))
				return err
			},
		} {
			var out bytes.Buffer
			if err := print(&out); err != nil {
				t.Fatal(err)
			}
			if i := strings.IndexFunc(out.String(), func(r rune) bool {
				return r != '\n' && (unicode.IsControl(r) || what != "prometheus" && !unicode.IsPrint(r))
			}); i >= 0 {
				t.Errorf("%s: %q", what, out.String()[max(0, i-20):min(out.Len(), i+20)])
			}
			lines[what] = strings.Count(out.String(), "\n")
			if strings.HasPrefix(what, "json") {
				var back jsonReport
				if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Locks[0].Name != strings.ToValidUTF8(name, "\ufffd") {
					t.Errorf("%s: %q became %q, %v", what, name, back.Locks[0].Name, err)
				}
			}
		}
		if lines["table"] != 7 || lines["json line"] != 1 || lines["message"] != 1 {
			t.Errorf("lines: %v", lines)
		}
	})
}
