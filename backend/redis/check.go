package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
)

var _ backend.Checker = (*Backend)(nil)

// Check looks at the server, or at each master of a cluster.
func (b *Backend) Check(ctx context.Context, _ time.Duration) (checks []backend.Check) {
	c, ok := b.client.(*redis.ClusterClient)
	if !ok {
		return b.checkNode(ctx, b.client, "")
	}
	found := make(chan []backend.Check, 1)
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for list := range found {
			checks = append(checks, list...)
		}
	}()
	err := c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		found <- b.checkNode(ctx, node, node.Options().Addr+": ")
		return nil
	})
	close(found)
	<-collected
	if err != nil {
		checks = append(checks, backend.Found("cluster", backend.Fail, "look at its nodes", "%v", b.translate(err)))
	}
	return checks
}

// checkNode looks at one server; its name comes before what is found.
func (b *Backend) checkNode(ctx context.Context, node redis.Cmdable, name string) []backend.Check {
	info, err := node.Info(ctx).Result()
	if err != nil {
		return []backend.Check{backend.Found("settings", backend.Warn,
			"grant +info to see eviction, persistence and replicas; a proxy that does not know INFO may not know what locks need",
			"%s%v", name, b.translate(err))}
	}
	checks := []backend.Check{
		version(name, info), b.policyCheck(name, info), persistence(name, info), b.replication(name, info), b.shape(name, info),
	}
	if now, err := node.Time(ctx).Result(); err == nil {
		checks = append(checks, backend.ClockCheck(now, time.Now()))
	}
	return checks
}

// version holds the server's version against what the scripts need.
func version(name, info string) backend.Check {
	const check = "version"
	v := field(info, "redis_version")
	var major, minor int
	_, _ = fmt.Sscanf(v, "%d.%d", &major, &minor) // what cannot be read is 0
	if major < 6 || major == 6 && minor < 2 {
		return backend.Found(check, backend.Fail, "dlock needs Redis 6.2 or Valkey", "%s%s", name, v)
	}
	return backend.Good(check, "%s%s", name, v)
}

func (b *Backend) policyCheck(name, info string) backend.Check {
	const check = "eviction"
	switch policy := field(info, "maxmemory_policy"); policy {
	case "noeviction":
		return backend.Good(check, "%smaxmemory-policy is noeviction", name)
	case "":
		return backend.Found(check, backend.Warn, "see that maxmemory-policy is noeviction", "%sthe server does not tell its maxmemory-policy", name)
	default:
		return backend.Found(check, backend.Warn, "CONFIG SET maxmemory-policy noeviction, or a server for locks alone",
			"%smaxmemory-policy %s may throw locks away when the memory is full", name, policy)
	}
}

func persistence(name, info string) backend.Check {
	const check = "persistence"
	switch {
	case field(info, "aof_enabled") == "1" && field(info, "aof_last_write_status") == "err",
		field(info, "rdb_last_bgsave_status") == "err":
		return backend.Found(check, backend.Fail, "see the server's log; its disk may be full", "%sthe last write to disk failed", name)
	case field(info, "aof_enabled") != "1":
		return backend.Found(check, backend.Warn, "appendonly yes, or restart it only when no lock is held for longer than the longest TTL",
			"%sa restart forgets locks: appendonly is off", name)
	}
	return backend.Good(check, "%sappendonly is on", name)
}

// replication looks at what a failover would do.
func (b *Backend) replication(name, info string) backend.Check {
	const check = "replicas"
	n, _ := strconv.Atoi(field(info, "connected_slaves"))
	switch {
	case field(info, "role") == "slave":
		return backend.Found(check, backend.Fail, "name the master, or the sentinels: redis+sentinel://", "%sthis is a replica, which takes no locks", name)
	case n < b.opts.Replicas:
		return backend.Found(check, backend.Fail, "no lock can be taken: start replicas, or lower ?replicas",
			"%s%d connected, and ?replicas=%d", name, n, b.opts.Replicas)
	case n > 0 && b.opts.Replicas == 0:
		return backend.Found(check, backend.Warn, "?replicas=1 makes a take wait for one of them",
			"%s%d connected; a failover to one that has not got a lock yet loses it", name, n)
	case n > 0:
		return backend.Good(check, "%s%d connected, and a lock counts when %d have it", name, n, b.opts.Replicas)
	}
	return backend.Good(check, "%snone, so no failover can lose a lock", name)
}

// shape finds out whether the URL says what kind of service it is.
func (b *Backend) shape(name, info string) backend.Check {
	const check = "kind"
	cluster, mode := field(info, "cluster_enabled") == "1", field(info, "redis_mode")
	switch {
	case mode == "sentinel":
		return backend.Found(check, backend.Fail, "redis+sentinel://host:26379/MASTER", "%sthis is a sentinel and no server", name)
	case cluster && !b.opts.Cluster:
		return backend.Found(check, backend.Fail, "redis+cluster://", "%sthis is one node of a cluster, and the URL names it alone", name)
	case b.opts.Cluster:
		return backend.Good(check, "%sa master of a cluster", name)
	case b.behindProxy(info):
		return backend.Found(check, backend.Warn, "name the server itself; a proxy must pass scripts and pub/sub on, and keep to one server",
			"%sthe server listens on port %s: a proxy or a port mapping is in between", name, field(info, "tcp_port"))
	}
	return backend.Good(check, "%sa single server", name)
}

// behindProxy tells whether the server's port is another than ours.
func (b *Backend) behindProxy(info string) bool {
	port := field(info, "tcp_port")
	if b.opts.TLS != nil || b.opts.Socket != "" || b.opts.Master != "" || port == "" || port == "0" {
		return false
	}
	return !hasPort(b.opts.Addrs[0], port)
}
