package redlock

import (
	"net/url"
	"testing"

	"github.com/dlock/dlock/backend/backendtest"
)

func FuzzParseURL(f *testing.F) {
	backendtest.URLs(f, Schemes, func(u *url.URL) (string, error) {
		o, err := ParseURL(u)
		return o.address(), err
	})
}
