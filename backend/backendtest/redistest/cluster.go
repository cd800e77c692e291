package redistest

import (
	"testing"

	"github.com/dlock/dlock/backend/backendtest"
)

// ClusterServers are three masters that share all slots.
type ClusterServers struct{ Nodes []*Server }

// slotCount is how many slots a Redis cluster has.
const slotCount = 16384

// Cluster starts a cluster, each server with args, and returns when all of it works.
func Cluster(t testing.TB, args ...string) *ClusterServers {
	t.Helper()
	c := &ClusterServers{}
	for range 3 {
		c.Nodes = append(c.Nodes, Start(t, append([]string{"--cluster-enabled", "yes"}, args...)...))
	}
	for i, node := range c.Nodes {
		c.join(t, i, node)
	}
	backendtest.Eventually(t, "the cluster works", func() bool { return c.works(t) })
	return c
}

// join gives a node its slots and lets it meet the first one. Each gets an epoch of
// its own, as redis-cli does it: otherwise they have to settle that among themselves.
func (c *ClusterServers) join(t testing.TB, i int, node *Server) {
	t.Helper()
	client, first := node.Client(), c.Nodes[0]
	begin, end := c.slots(i)
	for _, command := range [][]any{
		{"cluster", "set-config-epoch", i + 1},
		{"cluster", "addslotsrange", begin, end},
		{"cluster", "meet", "127.0.0.1", first.Port},
	} {
		if err := client.Do(t.Context(), command...).Err(); err != nil {
			t.Fatalf("%v: %v", command, err)
		}
	}
}

// slots is the range of node i, its end included.
func (c *ClusterServers) slots(i int) (begin, end int) {
	n := len(c.Nodes)
	return i * slotCount / n, (i+1)*slotCount/n - 1
}

// works tells whether every node knows all the others and all the slots.
func (c *ClusterServers) works(t testing.TB) bool {
	for _, node := range c.Nodes {
		client := node.newClient()
		state := info(t.Context(), client, "cluster", "info")
		client.Close()
		if state["cluster_state"] != "ok" || state["cluster_size"] != "3" || state["cluster_known_nodes"] != "3" {
			return false
		}
	}
	return true
}

// Addrs lists the nodes' addresses.
func (c *ClusterServers) Addrs() []string {
	var addrs []string
	for _, node := range c.Nodes {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// NodeFor is the node that has the key's slot.
func (c *ClusterServers) NodeFor(t testing.TB, key string) *Server {
	t.Helper()
	slot, err := c.Nodes[0].Client().ClusterKeySlot(t.Context(), key).Result()
	if err != nil {
		t.Fatal(err)
	}
	for i, node := range c.Nodes {
		if begin, end := c.slots(i); int(slot) >= begin && int(slot) <= end {
			return node
		}
	}
	t.Fatalf("no node has slot %d", slot)
	panic("unreachable")
}
