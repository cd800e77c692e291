package tair

import (
	"net/url"
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
