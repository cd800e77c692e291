package mysql

import (
	"strings"
	"testing"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/mysqltest"
)

func TestInspectFlagsAnUnreadableRecord(t *testing.T) {
	server := mysqltest.Start(t)
	b := use(t, server.URL("d")+"?mode=table")
	h := backendtest.MustAcquire(t, b, exclusive("job"))
	c := server.Conn("d")
	c.Do("UPDATE dlock_lock SET holders = 'noise' WHERE name = 'job'")
	s := backendtest.InspectOne(t, b, "job")
	if len(s.Holders) != 1 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0], "cannot be read") {
		t.Errorf("inspect: %+v, want a holder and a record that cannot be read", s)
	}
	backendtest.MustRelease(t, h)
}
