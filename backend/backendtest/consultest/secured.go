package consultest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/consul/api"
)

// StartSecured starts a server that lets nobody do anything without an ACL token; the
// one that is given may do everything.
func StartSecured(t testing.TB, token string) *Server {
	t.Helper()
	for range 10 {
		s := prepare(t, 1, []string{fmt.Sprintf(`
acl {
  enabled = true
  default_policy = "deny"
  tokens { initial_management = %q, agent = %q }
}`, token, token)})
		s.token = token
		err := s.launch()
		if err == nil {
			err = s.awaitLeader()
		}
		if err == nil {
			return s
		}
		if !errors.Is(err, errPortTaken) {
			t.Fatal(err)
		}
	}
	t.Fatal("consul: each port was taken before it could be used")
	panic("unreachable")
}

// newClient returns a client of what listens at host:port.
func newClient(t testing.TB, addr, token string) *api.Client {
	t.Helper()
	c, err := api.NewClient(&api.Config{Address: addr, Token: token, Transport: api.DefaultConfig().Transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
