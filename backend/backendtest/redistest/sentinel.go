package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend/backendtest"
)

// SentinelServers are a master and its replica, watched by three sentinels.
type SentinelServers struct {
	Name            string // of the master, as the sentinels know it
	Master, Replica *Server
	Sentinels       []*Server
}

// Sentinels starts them, master and replica with args, and returns when the replica
// has all data and the sentinels know each other. They take a master for dead after
// a second.
func Sentinels(t testing.TB, args ...string) *SentinelServers {
	t.Helper()
	// A replica is served at once, not after the 5 s that others are waited for.
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	s := &SentinelServers{Name: "main", Master: Start(t, args...)}
	s.Replica = Start(t, append(args, "--replicaof", "127.0.0.1", fmt.Sprint(s.Master.Port))...)
	backendtest.Eventually(t, "the replica is online", func() bool { return s.replicates(t) })
	for range 3 {
		s.Sentinels = append(s.Sentinels, s.startSentinel(t))
	}
	for _, sentinel := range s.Sentinels {
		backendtest.Eventually(t, "the sentinels know each other", func() bool { return s.knowsAll(t, sentinel) })
	}
	return s
}

// replicates tells whether both ends of the replication say that it works.
func (s *SentinelServers) replicates(t testing.TB) bool {
	master, replica := s.Master.newClient(), s.Replica.newClient()
	defer master.Close()
	defer replica.Close()
	return strings.Contains(info(t.Context(), master, "info", "replication")["slave0"], "state=online") &&
		info(t.Context(), replica, "info", "replication")["master_link_status"] == "up"
}

// startSentinel starts one; it needs a file of settings that it may write to.
func (s *SentinelServers) startSentinel(t testing.TB) *Server {
	t.Helper()
	return start(t, func(server *Server) {
		file := filepath.Join(server.Dir, "sentinel.conf")
		text := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\n"+
			"sentinel down-after-milliseconds %[1]s 1000\nsentinel failover-timeout %[1]s 3000\n", s.Name, s.Master.Port)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		server.args = []string{file, "--sentinel"}
	})
}

// knowsAll tells whether a sentinel knows the replica and the two others.
func (s *SentinelServers) knowsAll(t testing.TB, sentinel *Server) bool {
	client := sentinelClient(sentinel)
	defer client.Close()
	master, err := client.Master(t.Context(), s.Name).Result()
	return err == nil && master["num-slaves"] == "1" && master["num-other-sentinels"] == "2"
}

func sentinelClient(sentinel *Server) *redis.SentinelClient {
	return redis.NewSentinelClient(sentinel.newClient().Options())
}

// SentinelAddrs lists the sentinels' addresses.
func (s *SentinelServers) SentinelAddrs() []string {
	var addrs []string
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr())
	}
	return addrs
}

// AwaitFailover returns when all sentinels name the replica as the master, and it
// takes itself for that.
func (s *SentinelServers) AwaitFailover(t testing.TB) {
	t.Helper()
	backendtest.Eventually(t, "the replica is the master", func() bool {
		replica := s.Replica.newClient()
		defer replica.Close()
		return s.allName(t, s.Replica) && info(t.Context(), replica, "info", "replication")["role"] == "master"
	})
}

// allName tells whether all sentinels name that server as the master.
func (s *SentinelServers) allName(t testing.TB, server *Server) bool {
	for _, sentinel := range s.Sentinels {
		client := sentinelClient(sentinel)
		addr, err := client.GetMasterAddrByName(t.Context(), s.Name).Result()
		client.Close()
		if err != nil || strings.Join(addr, ":") != server.Addr() {
			return false
		}
	}
	return true
}
