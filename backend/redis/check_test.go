package redis

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/backendtest/relay"
)

func finds(t *testing.T, address string, level backend.Level, name, words string) {
	t.Helper()
	backendtest.Finds(t, fromURL(t, address), 0, level, name, words)
}

func TestCheckOfAGoodServer(t *testing.T) {
	server := redistest.Start(t, "--appendonly", "yes")
	for _, c := range fromURL(t, server.URL()).Check(t.Context(), 0) {
		if c.Level != backend.OK {
			t.Errorf("%+v, want nothing to do", c)
		}
	}
	finds(t, server.URL(), backend.OK, "version", ".")
	finds(t, server.URL(), backend.OK, "eviction", "noeviction")
	finds(t, server.URL(), backend.OK, "persistence", "appendonly is on")
	finds(t, server.URL(), backend.OK, "replicas", "none")
	finds(t, server.URL(), backend.OK, "kind", "a single server")
	finds(t, server.URL(), backend.OK, "clock", "this host's")
}

func TestCheckOfSettings(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	finds(t, server.URL(), backend.Warn, "eviction", "allkeys-lru may throw locks away")
	finds(t, server.URL(), backend.Warn, "persistence", "a restart forgets locks")
	finds(t, "redis://"+relay.New(t, server.Addr()).Addr(), backend.Warn, "kind", "a proxy or a port mapping")

	client := server.Client()
	if err := client.Do(t.Context(), "ACL", "SETUSER", "lock", "on", ">secret", "~dlock:*", "&dlock:*", "+@all", "-@dangerous").Err(); err != nil {
		t.Fatal(err)
	}
	finds(t, strings.Replace(server.URL(), "redis://", "redis://lock:secret@", 1), backend.Warn, "settings", "")

	// A directory in the dump's place makes the server's next one fail.
	if err := os.MkdirAll(filepath.Join(server.Dir, "dump.rdb", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := client.BgSave(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	backendtest.Eventually(t, "the dump has failed", func() bool {
		return strings.Contains(client.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
	finds(t, server.URL(), backend.Fail, "persistence", "the last write to disk failed")
}

func TestCheckOfReplicas(t *testing.T) {
	master := redistest.Start(t)
	replica := redistest.Start(t, "--replicaof", fmt.Sprintf("127.0.0.1 %d", master.Port))
	client := master.Client()
	backendtest.Eventually(t, "the replica is there", func() bool {
		return strings.Contains(client.Info(t.Context(), "replication").Val(), "connected_slaves:1")
	})
	finds(t, master.URL(), backend.Warn, "replicas", "1 connected; a failover")
	finds(t, master.URL()+"?replicas=1", backend.OK, "replicas", "a lock counts when 1 have it")
	finds(t, master.URL()+"?replicas=2", backend.Fail, "replicas", "?replicas=2")
	finds(t, replica.URL(), backend.Fail, "replicas", "this is a replica")
}

func TestCheckOfACluster(t *testing.T) {
	c := redistest.Cluster(t)
	finds(t, "redis://"+c.Addrs()[0], backend.Fail, "kind", "one node of a cluster")
	checks := fromURL(t, "redis+cluster://"+strings.Join(c.Addrs(), ",")).Check(t.Context(), 0)
	masters := 0
	for _, check := range checks {
		if check.Name == "kind" && check.Level == backend.OK {
			masters++
		}
	}
	if masters != len(c.Addrs()) {
		t.Errorf("%d masters looked at, want %d: %+v", masters, len(c.Addrs()), checks)
	}
}

func TestCheckOfASentinel(t *testing.T) {
	s := redistest.Sentinels(t)
	finds(t, "redis://"+s.SentinelAddrs()[0], backend.Fail, "kind", "this is a sentinel")
}

// No old server is at hand: this one is made to say that it is.
func TestCheckOfAnOldServer(t *testing.T) {
	server := redistest.Start(t)
	is := "redis_version:" + field(server.Client().Info(t.Context(), "server").Val(), "redis_version")[:1]
	finds(t, "redis://"+relay.Rewrite(t, server.Addr(), relay.Replies, is, "redis_version:5"), backend.Fail, "version", "5.")
}

func TestVersionThatIsTooOld(t *testing.T) {
	for v, want := range map[string]backend.Level{
		"5.0.14": backend.Fail, "6.0.16": backend.Fail, "6.2.0": backend.OK, "7.0.15": backend.OK, "8.10.1": backend.OK, "": backend.Fail,
	} {
		if got := version("", "redis_version:"+v+"\r\n"); got.Level != want {
			t.Errorf("%s: %+v, want %s", v, got, want)
		}
	}
}
