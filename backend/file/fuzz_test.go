package file

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
)

func FuzzParseRecord(f *testing.F) {
	for _, s := range []string{
		`{"version":1,"name":"j","boot":"b","fence":5}`, ``, `null`, `[]`, `{"version":2}`, `{"version":-1}`, "\xff",
		`{"version":1,"holders":[{"token":"a","mode":{"kind":"slots","n":3},"fence":1,"since":5,"ttl":9,"expires":77,"tail":true}],"queue":[{}]}`,
		`{"version":1,"holders":[{"token":"a","mode":{"kind":"exclusive"},"owner":{"pid":1e99}}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := parseRecord(data)
		if err != nil {
			return
		}
		first, err := json.Marshal(rec)
		if err != nil {
			t.Fatalf("%q is read and cannot be written: %v", data, err)
		}
		rec, err = parseRecord(first)
		if err != nil {
			t.Fatalf("%q is written as %q, which cannot be read: %v", data, first, err)
		}
		if second, _ := json.Marshal(rec); !bytes.Equal(first, second) {
			t.Errorf("%q became %q", first, second)
		}
	})
}

func FuzzBaseName(f *testing.F) {
	long := strings.Repeat("x", 250)
	for _, s := range [][4]string{
		{"", "a/b", "", "a_b"}, {"", "a+b", "a", "b"}, {"a+b", "c", "a", "b+c"}, {"", "%", "", "%25"}, {"", ".", "", ".."},
		{"", long + "abcde", "", long + "abcdf"}, {"", strings.Repeat("ü", 120), "", strings.Repeat("ü", 119) + "ö"}, {"n", long, "", "n+" + long},
		{"", "a", "", "A"}, {"", "a ", "", "a"}, {"", "x.lock", "", "x"}, {"", "x.dlock", "", "x"},
	} {
		f.Add(s[0], s[1], s[2], s[3])
	}
	f.Fuzz(func(t *testing.T, ns1, name1, ns2, name2 string) {
		valid := func(ns, name string) bool {
			return backend.CheckName(name) == nil && (ns == "" || backend.CheckName(ns) == nil)
		}
		if !valid(ns1, name1) || !valid(ns2, name2) {
			return
		}
		base1, base2 := baseName(ns1, name1), baseName(ns2, name2)
		if same := ns1 == ns2 && name1 == name2; same != (base1 == base2) {
			t.Fatalf("%q %q and %q %q are called %q and %q", ns1, name1, ns2, name2, base1, base2)
		}
		if len(base1+stateSuffix) > 255 || len(base1+publicSuffix) > 255 || strings.ContainsAny(base1, "/\x00") || strings.HasPrefix(base1, ".") {
			t.Fatalf("%q %q is called %q", ns1, name1, base1)
		}
		if got, ok := lockName(ns1, base1); ok == strings.Contains(base1, "%~") || ok && got != name1 {
			t.Errorf("%q of %q %q reads as %q, %v", base1, ns1, name1, got, ok)
		}
		if got, ok := lockName(ns2, base1); ok && ns1 != ns2 {
			t.Errorf("%q of %q %q reads as %q in %q", base1, ns1, name1, got, ns2)
		}
	})
}

func FuzzParseURL(f *testing.F) {
	backendtest.URLs(f, []string{"file"}, func(u *url.URL) (string, error) {
		o, err := ParseURL(u)
		return New(o).Limits().Address, err
	})
}
