package backendtest

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// names are those that a store's own syntax may take amiss, and neighbours that one
// of its rules (case, blanks, escapes, length, suffixes) could take for the same.
func names() []string {
	x := strings.Repeat
	return []string{
		"a/b", "a_b", "a%2Fb", "a%2fb", "a%252Fb", "a:b", "a+b", "a.b", "a", "b", "a/", "/a", "a//b", "/", "//",
		"/etc/x", "../../x", ".", "..", "./j", "x", "-n", "--", "a b", "a  b", "a%20b", "a%b_c", "%", "%2F", "_",
		"j", "J", "j ", " j", " ", "jób", "jo\u0301b", "job", "ü", "Ü", "u", "ß", "ss", "😀", "😁", "日本", "a\u00a0b",
		"lock-0000000001", "lock-0000000002", "1", "01", "1.0", "{x}y", "{x}z", "x}y", "a{b", "{}x", "{}", "{", "{{x}}",
		"*", "?", "[a]", "'", `"`, `\`, ";", "$HOME", "#", "&", "|", "~", "`", "a\u200bb", "null", "true",
		"j.lock", "j.dlock", "j/.lock", "j/record.json", "j:queue", "j:fence", "dlock", "dlock:j", "dlock/j",
		x("x", 64), x("x", 65), x("x", 192), x("x", 193), x("x", 254), x("x", 254) + "y", x("x", 255), x("X", 255),
		x("ü", 127), x("ü", 126) + "ö", x("/", 255), x("/", 254) + "a", x("%", 255), x("😀", 63), x(" ", 254) + "j", x(" ", 255),
	}
}

// namesNeverMeet holds all names at once, so that no two of them can be one lock.
func namesNeverMeet(t *testing.T, e *env) {
	b, other := e.client(t), e.client(t)
	for _, name := range names() {
		req := NoWait(Request(name, Exclusive))
		req.Owner.Reason = name
		req.TTL = 10 * time.Minute // nobody renews so many
		defer MustRelease(t, MustAcquire(t, b, req))
	}
	for _, name := range names() {
		busy := MustBeBusy(t, other, Request(name, Exclusive))
		if len(busy.Holders) != 1 || busy.Holders[0].Owner.Reason != name {
			t.Errorf("%q is held by %+v", name, busy.Holders)
		}
		if s := InspectOne(t, other, name); len(s.Holders) != 1 || s.Holders[0].Owner.Reason != name {
			t.Errorf("%q is shown as %+v", name, s)
		}
	}
	list, err := other.Inspect(t.Context())
	if got, want := sorted(namesOf(list)), sorted(names()); err != nil || !slices.Equal(got, want) {
		t.Errorf("inspect of all: %v\ngot  %q\nwant %q", err, got, want)
	}
}

// namespacesNeverMeet holds the same and similar names in several namespaces at once.
func namespacesNeverMeet(t *testing.T, e *env) {
	held := map[string][]string{
		"":    {"j", "k"},
		"a":   {"j", "b:c", "b/c", "b+c", "b.c", "b_c", "b%2Fc", "{b}c", strings.Repeat("x", 255)},
		"b":   {"j", strings.Repeat("x", 255)},
		"A":   {"j"},
		"a:b": {"c", "j"},
		"a/b": {"c", "j"},
		"a+b": {"c", "j"},
		"a.b": {"c", "j"},
		"a_b": {"c", "j"},
		"a%b": {"c", "j"},
		"{a}": {"j"},
		"é ü": {"j"},
	}
	for namespace, names := range held {
		b := e.clientIn(t, namespace)
		for _, name := range names {
			req := NoWait(Request(name, Exclusive))
			req.Owner.Reason = namespace
			defer MustRelease(t, MustAcquire(t, b, req))
		}
	}
	for namespace, names := range held {
		b := e.clientIn(t, namespace)
		for _, name := range names {
			holder := MustBeBusy(t, b, Request(name, Exclusive)).Holders
			if len(holder) != 1 || holder[0].Owner.Reason != namespace {
				t.Errorf("%q in %q is held by %+v", name, namespace, holder)
			}
		}
		list, err := b.Inspect(t.Context())
		if got := sorted(namesOf(list)); err != nil || !slices.Equal(got, sorted(names)) {
			t.Errorf("inspect of all in %q: %q, %v; want %q", namespace, got, err, names)
		}
	}
}
