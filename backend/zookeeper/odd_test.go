package zookeeper_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/backend/backendtest/zktest"
)

func TestInspectFlagsAnUnreadableRecord(t *testing.T) {
	server := zktest.Start(t)
	b, client := dial(t, server.URL()+"/x"), server.Client()
	h := backendtest.MustAcquire(t, b, exclusive(30*time.Second))
	nodes, _, err := client.Children("/x/j")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if _, err := client.Set("/x/j/"+n, []byte("noise"), -1); err != nil {
			t.Fatal(err)
		}
	}
	s := backendtest.InspectOne(t, b, "j")
	if len(s.Holders) != 1 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "cannot be read") {
		t.Errorf("inspect: %+v, want a holder and a record that cannot be read", s)
	}
	backendtest.MustRelease(t, h)
}

// TestInspectFlagsAnOverdueLease lets Curator wait for a lease that nobody ends.
func TestInspectFlagsAnOverdueLease(t *testing.T) {
	server := zktest.Start(t)
	b, client := dial(t, server.URL()+"/x"), server.Client()
	backendtest.MustAcquire(t, b, backendtest.Detached(exclusive(time.Second), time.Second))
	if _, err := client.Create("/x/j/_c_0-lock-", nil, zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	if s := backendtest.InspectOne(t, b, "j"); len(s.Waiters) == 1 && len(s.Problems) != 0 {
		t.Errorf("inspect: %+v, want nothing odd while the lease lasts", s)
	}
	backendtest.Eventually(t, "the lease is overdue", func() bool {
		s := backendtest.InspectOne(t, b, "j")
		return len(s.Problems) == 1 && strings.Contains(s.Problems[0], "keeps other programs waiting")
	})
}

// TestNumbersThatAreUsedUp: no line has that many contenders; a proxy gives this one a
// number that is near the end.
func TestNumbersThatAreUsedUp(t *testing.T) {
	server := zktest.Start(t)
	direct := dial(t, server.URL()+"/x?recipe=rwlock")
	b := dial(t, "zk://"+relay.Rewrite(t, server.Addr(), relay.Replies, "-__WRIT__0000", "-__WRIT__2147")+"/x?recipe=rwlock")
	_, err := b.Acquire(t.Context(), exclusive(30*time.Second))
	if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "the numbers of the line are used up below /x/j: let nobody use the lock") {
		t.Errorf("%v", err)
	}
	backendtest.MustRelease(t, backendtest.MustAcquire(t, direct, backendtest.NoWait(exclusive(30*time.Second)))) // it has left the line
}
