package mysql

import (
	"fmt"
	"net/url"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/mysqltest"
)

// open opens the service of a URL.
func open(t testing.TB, address, namespace string) *Backend {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	opts, err := ParseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	opts.Namespace = namespace
	return New(opts)
}

// modes are the ends of URLs.
var modes = []string{"mode=table", "mode=optimistic", "mode=optimistic&cas=updated_at", "mode=pessimistic"}

func TestConformance(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			server, db := mysqltest.Start(t), 0
			backendtest.Run(t, "dlock", func(t *testing.T) backendtest.Service {
				db++
				name := fmt.Sprint("db", db)
				server.Database(name)
				address := server.URL(name) + "?" + mode
				return backendtest.Service{
					Dial: func(namespace string) backend.Backend { return open(t, address, namespace) },
					InLine: func(lock string, n int) {
						b := open(t, address, "dlock")
						defer b.Close()
						backendtest.Eventually(t, "the waiters stand", func() bool { return b.standing(t, lock) == n })
					},
				}
			})
		})
	}
}

// standing counts those who wait at the server itself.
func (b *Backend) standing(t testing.TB, lock string) int {
	id, err := b.lock(lock)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = b.with(t.Context(), func(s *session) error {
		waiting, err := s.waiters(t.Context(), id.door)
		for _, w := range waiting {
			if w.state == "User lock" || w.state == "User sleep" {
				n++
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
