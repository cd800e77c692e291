//go:build linux

package testscripts

import (
	"fmt"
	"testing"

	"github.com/dlock/dlock/backend/backendtest/mysqltest"
)

// TestBackupThatLocksAllTables lets a backup lock all tables for longer than its lease, as
// mysqldump --lock-all-tables does. It is stopped, since dlock cannot renew. A hold that
// is a transaction lives on.
func TestBackupThatLocksAllTables(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	backup := func(seconds int) []string {
		return []string{"mariadb", "--no-defaults", "--user=root", "--socket=" + server.Socket(),
			"--execute=FLUSH TABLES WITH READ LOCK; SELECT SLEEP(" + fmt.Sprint(seconds) + ")"}
	}
	run := []string{"run", "--ttl", "10s", "--grace", "200ms", "backup", "--"}
	startLeased(t, server.URL("d"), append(run, backup(600)...)...).wantCode(76)
	startLeased(t, server.URL("d")+"?mode=pessimistic", append(run, backup(12)...)...).wantCode(0)
}
