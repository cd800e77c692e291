package zktest_test

import (
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/zktest"
)

func TestRestartKeepsDataAndWipeDoesNot(t *testing.T) {
	s := zktest.Start(t)
	create(t, s.Client(), "/k")
	s.Restart()
	if ok, _, err := s.Client().Exists("/k"); err != nil || !ok {
		t.Errorf("after a restart /k is there: %v, %v", ok, err)
	}
	s.Wipe()
	if ok, _, err := s.Client().Exists("/k"); err != nil || ok {
		t.Errorf("without its data the server has /k: %v, %v", ok, err)
	}
}

func create(t *testing.T, c *zk.Conn, path string) {
	t.Helper()
	if _, err := c.Create(path, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
}

func TestFollowerIsCutOff(t *testing.T) {
	e := zktest.StartCuttable(t, 3)
	leader, follower := e.Leader(t), e.Follower(t)
	if leader == follower {
		t.Fatal("the leader follows itself")
	}
	create(t, follower.Client(), "/k")
	e.Cut(follower, leader)
	backendtest.Eventually(t, "the follower gives up", func() bool { return follower.Mode() == "" })
	create(t, leader.Client(), "/l") // with the other one
	e.Mend(follower, leader)
	backendtest.Eventually(t, "the follower is back", func() bool { return follower.Mode() != "" })
	create(t, follower.Client(), "/m")
}
