package redlock

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
)

// at opens the service as the command line does, until the test ends. said are its
// details and warnings.
func at(t testing.TB, u url.URL) (b *Backend, said func() string) {
	t.Helper()
	o, err := ParseURL(&u)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all []string
	tell := func(msg string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, msg)
	}
	o.Namespace, o.Detail, o.Warn = "dlock", tell, tell
	b = New(o)
	t.Cleanup(func() { b.Close() })
	return b, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, "\n")
	}
}

// works shows that a Backend does what it has to: take, renew, wait, hand over, look.
func works(t *testing.T, b *Backend) backend.Status {
	t.Helper()
	h := backendtest.MustAcquire(t, b, leaseOf(time.Minute))
	mustRenew(t, h)
	w := backendtest.Wait(t, b, leaseOf(time.Minute))
	var s backend.Status
	backendtest.Eventually(t, "one holds and one waits", func() bool {
		s = backendtest.InspectOne(t, b, "j")
		return len(s.Holders) == 1 && len(s.Waiters) == 1
	})
	backendtest.MustRelease(t, h)
	backendtest.MustRelease(t, w.Hold(t))
	return s
}

// fails wants an error of a kind, in one line of words with nothing secret in it.
func fails(t *testing.T, b *Backend, kind error, words ...string) {
	t.Helper()
	_, err := b.Acquire(t.Context(), backendtest.NoWait(leaseOf(time.Minute)))
	if !errors.Is(err, kind) || errors.As(err, new(*backend.BusyError)) {
		t.Errorf("error %v, want that it %v", err, kind)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %v, want it with %q", err, w)
		}
	}
	if strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %q, want one line and no secret", err)
	}
}

// TestTLS: servers that speak TLS alone, and want a certificate.
func TestTLS(t *testing.T) {
	s := redistest.SeveralTLS(t, 3)
	list := func(servers ...*redistest.TLSServer) string {
		var addrs []string
		for _, server := range servers {
			addrs = append(addrs, server.Addr())
		}
		return strings.Join(addrs, ",")
	}
	encrypted := func(hosts string, parts ...string) *Backend {
		b, _ := at(t, url.URL{Scheme: schemeEncrypted, Host: hosts, RawQuery: strings.Join(parts, "&")})
		return b
	}
	ca, cert, key := "ca="+s[0].CA, "cert="+s[0].Cert, "key="+s[0].Key
	works(t, encrypted(list(s...), ca, cert, key))
	works(t, encrypted(list(s...), ca, cert, key, "server-name=localhost"))
	fails(t, encrypted(list(s...), ca, cert, key, "server-name=other"), backend.ErrUnavailable, "certificate")
	fails(t, encrypted(list(s...), cert, key), backend.ErrUnavailable, "certificate")
	fails(t, encrypted(list(s...), ca), backend.ErrUnavailable, "certificate")
	plain, _ := at(t, url.URL{Scheme: schemePlain, Host: list(s...)})
	fails(t, plain, backend.ErrUnavailable, "of the 3 servers do not work")

	// One server that somebody else certifies is done without, two of three are too many.
	other := redistest.SeveralTLS(t, 2)
	b := encrypted(list(s[0], s[1], other[0]), ca, cert, key)
	if status := works(t, b); len(status.Problems) != 1 || !strings.Contains(status.Problems[0], "certificate") {
		t.Errorf("problems %q, want the certificate", status.Problems)
	}
	fails(t, encrypted(list(s[0], other[0], other[1]), ca, cert, key), backend.ErrUnavailable, "2 of the 3", "certificate")
}

// TestCredentials: each server has a user of its own. Wrong ones are told, by the server's
// address and never by what they are.
func TestCredentials(t *testing.T) {
	s := start(t, 5)
	users := []string{"", "two", "three", "", ""}
	for i, server := range s {
		user := users[i]
		if user == "" {
			user = "default"
		}
		if err := server.Client().Do(t.Context(), "acl", "setuser", user, "reset", "on", ">secret"+server.Addr(), "~dlock:*", "&dlock:*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
	}
	// with is the service with a wrong password for some, and other servers that are away.
	with := func(wrong, away []int) (*Backend, func() string) {
		var hosts []string
		for i, server := range s {
			password := "secret" + url.QueryEscape(server.Addr())
			if slices.Contains(wrong, i) {
				password = "secretly"
			}
			addr := server.Addr()
			if slices.Contains(away, i) {
				addr = deadServers["closed port"](t)[0]
			}
			hosts = append(hosts, users[i]+":"+password+"@"+addr)
		}
		return at(t, url.URL{Scheme: schemePlain, Host: strings.Join(hosts, ",")})
	}
	const refused = "refuses this user name or password"
	silent := func(what, said string) {
		t.Helper()
		if strings.Contains(said, "secret") {
			t.Errorf("%s tells a secret: %s", what, said)
		}
	}

	b, said := with(nil, nil)
	if status := works(t, b); len(status.Problems) > 0 {
		t.Errorf("problems: %q", status.Problems)
	}
	silent("a service that works", said())

	b, said = with([]int{1}, []int{4}) // a minority
	status := works(t, b)
	if p := strings.Join(status.Problems, "\n"); !strings.Contains(p, "2 of the 5") || !strings.Contains(p, s[1].Addr()+" "+refused) {
		t.Errorf("problems %q, want both servers", status.Problems)
	}
	silent("inspect", strings.Join(status.Problems, "\n"))
	backendtest.Eventually(t, "both are named once", func() bool {
		return strings.Count(said(), s[1].Addr()+" "+refused) == 1 && strings.Count(said(), "going on without") == 2
	})
	silent("the details", said())

	backendtest.Eventually(t, "all have let go", func() bool { return strings.Join(s.tokens(t), "") == "" })
	b, said = with([]int{0, 1, 2}, nil) // a majority
	fails(t, b, backend.ErrDenied, refused)
	silent("the details", said())
	b, said = with([]int{1}, []int{3, 4}) // a majority, each for its own reason
	fails(t, b, backend.ErrUnavailable, "2 of the 5 servers do not work and 1 refuse", s[1].Addr()+" "+refused)
	silent("the details", said())
	for i, left := range s.tokens(t) {
		if left != "" {
			t.Errorf("left on server %d: %q", i, left)
		}
	}
}
