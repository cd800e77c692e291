package zookeeper_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/zktest"
)

func TestCheckOfOneServer(t *testing.T) {
	server := zktest.Start(t, "minSessionTimeout=5000", "maxSessionTimeout=20000")
	b := dial(t, server.URL()+"/x")
	for _, c := range []struct {
		ttl   time.Duration
		level backend.Level
		words string
	}{
		{10 * time.Second, backend.OK, "granted as it is"},
		{30 * time.Second, backend.Warn, "30s is cut to 20s by maxSessionTimeout"},
		{time.Second, backend.Warn, "1s is raised to 5s by minSessionTimeout"},
	} {
		backendtest.Finds(t, b, c.ttl, c.level, "session", c.words)
	}
	backendtest.Finds(t, b, 10*time.Second, backend.Warn, "quorum", "a single server")
	backendtest.Finds(t, b, 10*time.Second, backend.OK, "server", "serves as standalone")
	h := backendtest.MustAcquire(t, b, backendtest.Request("dlock-doctor", backendtest.Exclusive))
	backendtest.MustRelease(t, h)
	backendtest.Finds(t, b, 10*time.Second, backend.OK, "clock", "this host's")
}

func TestCheckOfAnEnsemble(t *testing.T) {
	e := zktest.StartEnsemble(t, 3)
	all := dial(t, e.URL()+"/x")
	backendtest.Finds(t, all, 10*time.Second, backend.OK, "quorum", "3 servers stand the loss of 1")
	backendtest.Finds(t, all, 10*time.Second, backend.OK, "server", "serves as leader")
	backendtest.Finds(t, dial(t, e.Servers[0].URL()+"/x"), 10*time.Second, backend.Warn, "quorum", "the URL names one")
	lost := e.Follower(t)
	lost.Kill()
	backendtest.Finds(t, all, 10*time.Second, backend.Warn, "server", lost.Addr()+" does not tell")
}

func TestCheckOfAnEvenEnsemble(t *testing.T) {
	e := zktest.StartEnsemble(t, 2)
	b := dial(t, e.URL()+"/x")
	backendtest.Finds(t, b, 10*time.Second, backend.Warn, "quorum", "2 servers stand the loss of 0, as 1 would")
	for _, c := range b.Check(t.Context(), 10*time.Second) {
		if strings.Contains(c.Text, "%!") {
			t.Errorf("%+v", c)
		}
	}
}

// TestCheckOfMembersThatAreHidden takes the right to read the members from everybody, which
// only the server's own super user can.
func TestCheckOfMembersThatAreHidden(t *testing.T) {
	digest := zk.DigestACL(zk.PermAll, "super", "secret")[0].ID
	server := zktest.Start(t, "DigestAuthenticationProvider.superDigest="+digest)
	super := server.Client()
	if err := super.AddAuth("digest", []byte("super:secret")); err != nil {
		t.Fatal(err)
	}
	if _, err := super.SetACL("/zookeeper/config", zk.DigestACL(zk.PermRead, "admin", "secret"), -1); err != nil {
		t.Fatal(err)
	}
	backendtest.Finds(t, dial(t, server.URL()+"/x"), 10*time.Second, backend.Warn, "quorum", "the members of the ensemble cannot be seen")
}
