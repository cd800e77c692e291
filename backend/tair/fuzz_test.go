package tair

import (
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/redis"
)

func FuzzParseURL(f *testing.F) {
	backendtest.URLs(f, Schemes, func(u *url.URL) (string, error) {
		o, err := ParseURL(u)
		if err != nil {
			return "", err
		}
		return redis.NewNode(o).Address(), nil
	})
}

// FuzzView: whatever stands in the keys, a value is a holder, of ours only if the record
// has the token of the value.
func FuzzView(f *testing.F) {
	f.Add("t", `{"token":"t","fence":3,"since":1,"owner":{"kind":"run"}}`, int64(1000), int64(5))
	f.Add("dlock:tail:t", `{"token":"t"}`, int64(-1), int64(-9e18))
	f.Add("dlock:revoked:", `{"token":""}`, int64(9e18), int64(9e18))
	f.Add("foreign", "x", int64(-2), int64(0))
	f.Fuzz(func(t *testing.T, value, owner string, left, micros int64) {
		v := read([]any{value, left, owner, "7", []any{strconv.FormatInt(micros/1e6, 10), "0"}})
		h := v.holder()
		if h.Leased != (left >= 0) || h.Leased != (h.Left >= 0) || (h.Token != "") != (v.record != nil) || !strings.HasSuffix(value, h.Token) {
			t.Errorf("%q, %q: %+v", value, owner, h)
		}
	})
}
