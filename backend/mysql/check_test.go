package mysql

import (
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/mysqltest"
	"github.com/dlock/dlock/backend/backendtest/relay"
)

func finds(t *testing.T, address string, level backend.Level, name, words string) {
	t.Helper()
	backendtest.Finds(t, use(t, address), 30*time.Second, level, name, words)
}

func TestCheckOfAGoodServer(t *testing.T) {
	server := mysqltest.Start(t, "--innodb-flush-log-at-trx-commit=1")
	checks := use(t, server.URL("d")+"?mode=pessimistic").Check(t.Context(), 30*time.Second)
	if len(checks) != 8 {
		t.Errorf("%d checks: %+v", len(checks), checks)
	}
	for _, c := range checks {
		if c.Level != backend.OK {
			t.Errorf("%+v, want nothing to do", c)
		}
	}
}

func TestCheckOfSettings(t *testing.T) {
	server := mysqltest.Start(t, "--innodb-flush-log-at-trx-commit=2", "--max-connections=20", "--wsrep-on=ON")
	finds(t, server.URL("d"), backend.OK, "read_only", "off")
	server.Do("SET GLOBAL read_only = 1")
	finds(t, server.URL("d"), backend.Fail, "read_only", "read_only is on")
	finds(t, server.URL("d"), backend.Warn, "durability", "innodb_flush_log_at_trx_commit is 2")
	finds(t, server.URL("d"), backend.Warn, "connections", "at most 20")
	finds(t, server.URL("d"), backend.Warn, "galera", "a node of a cluster")
	finds(t, server.URL("d"), backend.OK, "lock wait", "its own")
	finds(t, server.URL("d")+"?mode=pessimistic", backend.OK, "lock wait", "its own")
}

// TestCheckOfWhatSessionsGet lets a proxy change what a session asks for.
func TestCheckOfWhatSessionsGet(t *testing.T) {
	server := mysqltest.Start(t)
	const idle = "idle_readonly_transaction_timeout ="
	finds(t, through(relay.Rewrite(t, server.Addr(), relay.Requests, idle+" 0", idle+" 5"), "mode=pessimistic"), backend.Warn, "lock wait", "idle_readonly_transaction_timeout is 5 s")
	for _, c := range []struct{ from, to, name, words string }{
		{"SET sql_mode", "SET sql_mode", "wait_timeout", ""}, // as it is
		{" wait_timeout = 3", " wait_timeout = 9", "wait_timeout", "a session has 9 s"},
		{"innodb_lock_wait_timeout = 1", "innodb_lock_wait_timeout = 7", "lock wait", "innodb_lock_wait_timeout = 7"},
		{" lock_wait_timeout = 1", " lock_wait_timeout = 7", "lock wait", " lock_wait_timeout = 7"},
		{"'READ-COMMITTED'", "'SERIALIZABLE'  ", "isolation", "serializable"},
	} {
		level := backend.Fail
		if c.from == c.to {
			level = backend.OK
		}
		finds(t, through(relay.Rewrite(t, server.Addr(), relay.Requests, c.from, c.to), ""), level, c.name, c.words)
	}
}
