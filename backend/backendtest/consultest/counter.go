package consultest

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
)

// Counter passes requests on to a server and counts them.
type Counter struct {
	URL string
	n   atomic.Int64
}

// Count starts a Counter in front of a server.
func Count(t testing.TB, s *Server) *Counter {
	c := &Counter{}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.Addr()})
	proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 1000}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.n.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
	})
	c.URL = "consul://" + strings.TrimPrefix(front.URL, "http://")
	return c
}

// Requests is how many there were.
func (c *Counter) Requests() int64 { return c.n.Load() }
