package redistest_test

import (
	"crypto/tls"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
)

func TestRestart(t *testing.T) {
	s := redistest.Start(t, "--appendonly", "yes")
	set(t, s.Client(), "k", "v")
	s.Restart()
	if got := s.Client().Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("with appendonly k is %q after a restart, want %q", got, "v")
	}
	s = redistest.Start(t)
	set(t, s.Client(), "k", "v")
	s.Kill()
	s.Restart("--requirepass", "secret")
	if err := s.Client().Get(t.Context(), "k").Err(); !redis.HasErrorPrefix(err, "NOAUTH") {
		t.Errorf("without a password: %v, want NOAUTH", err)
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr(), Password: "secret"})
	defer client.Close()
	if got, err := client.Get(t.Context(), "k").Result(); err != redis.Nil {
		t.Errorf("without appendonly k is %q, %v after a restart, want nothing", got, err)
	}
}

func TestStoppedServerDoesNotAnswer(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client()
	set(t, client, "k", "v")
	s.Stop()
	answer := make(chan error, 1)
	go func() { answer <- client.WithTimeout(backendtest.Patience).Ping(t.Context()).Err() }()
	select {
	case err := <-answer:
		t.Errorf("a stopped server answers: %v", err)
	default:
	}
	s.Cont()
	if err := backendtest.Receive(t, answer, "the answer"); err != nil {
		t.Error(err)
	}
}

func set(t *testing.T, c redis.Cmdable, key, value string) {
	t.Helper()
	if err := c.Set(t.Context(), key, value, 0).Err(); err != nil {
		t.Fatal(err)
	}
}

func TestUnixSocket(t *testing.T) {
	s := redistest.Start(t)
	set(t, s.Client(), "k", "v")
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket()})
	defer c.Close()
	if got := c.Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("k is %q over the socket, want %q", got, "v")
	}
}

func TestCluster(t *testing.T) {
	c := redistest.Cluster(t)
	nodes := map[*redistest.Server]bool{}
	for _, key := range []string{"a", "b", "c", "{a}b"} {
		node := c.NodeFor(t, key)
		set(t, node.Client(), key, "v") // another node would answer MOVED
		nodes[node] = true
	}
	if len(nodes) != 3 {
		t.Errorf("the keys are on %d nodes, want 3", len(nodes))
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer client.Close()
	set(t, client, "a", "w")
}

func TestSentinelsPromoteTheReplica(t *testing.T) {
	s := redistest.Sentinels(t)
	set(t, s.Master.Client(), "k", "v")
	if n := s.Master.Client().Wait(t.Context(), 1, 0).Val(); n != 1 {
		t.Fatalf("%d replicas have the data, want 1", n)
	}
	s.Master.Kill()
	s.AwaitFailover(t)
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.Name, SentinelAddrs: s.SentinelAddrs()})
	defer client.Close()
	if got := client.Get(t.Context(), "k").Val(); got != "v" {
		t.Errorf("k is %q after the failover, want %q", got, "v")
	}
	set(t, client, "k", "w")
}

func TestTLS(t *testing.T) {
	s := redistest.TLS(t)
	set(t, s.Client(), "k", "v")
	stranger := redis.NewClient(&redis.Options{Addr: s.Addr(), TLSConfig: &tls.Config{InsecureSkipVerify: true}})
	defer stranger.Close()
	if err := stranger.Ping(t.Context()).Err(); err == nil {
		t.Error("a client without a certificate gets an answer")
	}
}
