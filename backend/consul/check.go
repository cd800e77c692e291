package consul

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
)

var _ backend.Checker = (*Backend)(nil)

// Check looks at the cluster's leader and servers, and at the agent's settings.
func (b *Backend) Check(ctx context.Context, ttl time.Duration) []backend.Check {
	c, err := b.client()
	if err != nil {
		return []backend.Check{backend.Found("settings", backend.Fail, "look at the URL and at CONSUL_HTTP_…", "%v", err)}
	}
	return append([]backend.Check{b.checkServers(ctx, c)}, b.checkAgent(ctx, c, ttl)...)
}

// checkServers looks at those that vote.
func (b *Backend) checkServers(ctx context.Context, c *client) backend.Check {
	const check = "servers"
	leader, err := c.Status().LeaderWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
	if err == nil && leader == "" {
		err = fmt.Errorf("the cluster has no leader")
	}
	if err != nil {
		return backend.Found(check, backend.Fail, "consul operator raft list-peers", "%v", err)
	}
	peers, err := c.Status().PeersWithQueryOptions((&api.QueryOptions{}).WithContext(ctx))
	switch n := len(peers); {
	case err != nil:
		return backend.Found(check, backend.Warn, "consul operator raft list-peers", "the leader is %s; the servers cannot be seen: %v", leader, err)
	case n == 1:
		return backend.Found(check, backend.Warn, "three servers stand the loss of one", "one server: without it no lock can be taken or kept")
	case n%2 == 0:
		return backend.Found(check, backend.Warn, "an odd number", "%d servers stand no more losses than %d", n, n-1)
	default:
		return backend.Good(check, "%d, and %s leads them", n, leader)
	}
}

// checkAgent looks at what the agent says of itself.
func (b *Backend) checkAgent(ctx context.Context, c *client, ttl time.Duration) []backend.Check {
	var self struct {
		Config      struct{ Server bool }
		DebugConfig struct {
			SessionTTLMin         string
			ACLsEnabled           bool
			HTTPMaxConnsPerClient int
		}
	}
	if _, err := c.Raw().Query("/v1/agent/self", &self, (&api.QueryOptions{}).WithContext(ctx)); err != nil {
		return []backend.Check{backend.Found("agent", backend.Warn, `grant agent_prefix "" { policy = "read" } to see session_ttl_min and limits`,
			"its settings cannot be seen: %v", b.opts.translate(ctx, err))}
	}
	settings := self.DebugConfig
	checks := []backend.Check{sessionTTL(self.Config.Server, settings.SessionTTLMin, ttl)}
	if settings.ACLsEnabled {
		checks = append(checks, backend.Good("acl", "enabled"))
	} else {
		checks = append(checks, backend.Found("acl", backend.Warn, "acl { enabled = true }, and a token for locks",
			"disabled: whoever reaches the agent can end any lock"))
	}
	if most := settings.HTTPMaxConnsPerClient; most > 0 && most < manyConnections {
		checks = append(checks, backend.Found("connections", backend.Warn, "limits { http_max_conns_per_client = 200 }, or more",
			"%d from one address: more dlocks than that wait in vain behind one agent", most))
	}
	return checks
}

// manyConnections is Consul's own default of http_max_conns_per_client.
const manyConnections = 200

// sessionTTL holds a TTL against session_ttl_min, which a server knows.
func sessionTTL(server bool, least string, ttl time.Duration) backend.Check {
	const check = "session"
	d, err := time.ParseDuration(least)
	switch {
	case err != nil:
		return backend.Found(check, backend.Warn, "look at the servers' session_ttl_min", "the agent says %q of it", least)
	case ttl < d:
		return backend.Found(check, backend.Warn, "lower session_ttl_min, or use a longer --ttl",
			"a TTL of %v is raised to session_ttl_min, %v: a crash frees a lock no earlier than twice that", ttl, d)
	case !server:
		return backend.Good(check, "a TTL of %v is granted, if the servers' session_ttl_min is this agent's, %v", ttl, d)
	}
	return backend.Good(check, "a TTL of %v is granted; session_ttl_min is %v", ttl, d)
}
