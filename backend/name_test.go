package backend_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
)

func TestCheckName(t *testing.T) {
	for _, name := range []string{
		"backup", "a", ".", "..", "a/b/../c", " ", "trailing ", "100%", "{tag}", "Ünïcödé", "日本", "🔒",
		"-n", "a\u00a0b", strings.Repeat("x", backend.MaxName), strings.Repeat("é", 127),
	} {
		if err := backend.CheckName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for why, name := range map[string]string{
		"empty":         "",
		"too long":      strings.Repeat("x", backend.MaxName+1),
		"bytes count":   strings.Repeat("é", 128),
		"newline":       "a\nb",
		"zero byte":     "a\x00",
		"delete":        "\x7f",
		"C1 control":    "a\u0085b",
		"not UTF-8":     "a\xff",
		"half a rune":   "\xe6\x97",
		"a surrogate":   "\xed\xa0\x80",
		"escape colour": "\x1b[31m",
	} {
		err := backend.CheckName(name)
		if !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v, want invalid", why, err)
			continue
		}
		if strings.ContainsAny(err.Error(), "\n\x00\x1b") {
			t.Errorf("%s: the message %q is not fit to print", why, err)
		}
	}
}

func TestEscape(t *testing.T) {
	letters := func(_ int, c byte) bool { return c >= 'a' && c <= 'z' }
	notFirst := func(i int, _ byte) bool { return i > 0 }
	for _, c := range []struct {
		s, want string
		keep    func(int, byte) bool
	}{
		{"", "", letters},
		{"abc", "abc", letters},
		{"a b/C", "a%20b%2F%43", letters},
		{"%", "%25", letters},
		{"%25", "%2525", func(int, byte) bool { return true }},
		{"é", "%C3%A9", letters},
		{"..", "%2E.", notFirst},
	} {
		if got := backend.Escape(c.s, c.keep); got != c.want {
			t.Errorf("%q escaped is %q, want %q", c.s, got, c.want)
		}
	}
}

func TestUnescapeRefuses(t *testing.T) {
	for _, s := range []string{"%", "%2", "a%", "%2g", "%zz", "%2f", "%%25"} {
		if got, ok := backend.Unescape(s); ok {
			t.Errorf("%q unescaped is %q, want a refusal", s, got)
		}
	}
}

// FuzzEscape: whatever is kept, the escaped string gives back the original; so two
// different ones never meet.
func FuzzEscape(f *testing.F) {
	f.Add("backup", "")
	f.Add("a/b %41", "\xff\xff\xff\xff\xff\xff\xff\xff")
	f.Add("..%", "\x55\xaa")
	f.Fuzz(func(t *testing.T, s, bits string) {
		keep := func(i int, c byte) bool {
			if bits == "" {
				return false
			}
			n := i*31 + int(c)
			return bits[n/8%len(bits)]>>(n%8)&1 == 1
		}
		escaped := backend.Escape(s, keep)
		if got, ok := backend.Unescape(escaped); !ok || got != s {
			t.Errorf("%q became %q, and then %q, %v", s, escaped, got, ok)
		}
	})
}

// FuzzUnescape: what it accepts is what Escape makes of the result, when that keeps
// what stood there unescaped.
func FuzzUnescape(f *testing.F) {
	for _, s := range []string{"", "abc", "%2E.", "%", "%2", "%zz", "%25%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out, ok := backend.Unescape(s)
		if !ok {
			return
		}
		var plain []bool
		for i := 0; i < len(s); i++ {
			plain = append(plain, s[i] != '%')
			if s[i] == '%' {
				i += 2
			}
		}
		if got := backend.Escape(out, func(i int, _ byte) bool { return plain[i] }); got != s {
			t.Errorf("%q was accepted as %q, whose escape is %q", s, out, got)
		}
	})
}
