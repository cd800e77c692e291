package testscripts

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock/dlock/backend/backendtest/mysqltest"
)

// mysqlDatabase starts a server; each script has a database of its own.
func mysqlDatabase(options string) func(*testing.T) place {
	return func(t *testing.T) place {
		s := mysqltest.Start(t)
		return func(_ string, n int) string {
			name := fmt.Sprint("script", n)
			s.Do("CREATE DATABASE IF NOT EXISTS " + name)
			return s.URL(name) + "?" + options
		}
	}
}

// TestPessimisticScripts runs the scripts that need no detached locks, which
// mode=pessimistic refuses, and its own.
func TestPessimisticScripts(t *testing.T) {
	t.Parallel()
	all, err := filepath.Glob(filepath.Join("testdata", "all", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	own, err := filepath.Glob(filepath.Join("testdata", "mysql-pessimistic", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	files := own
	for _, f := range all {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, []byte("acquire")) {
			files = append(files, f)
		}
	}
	if len(own) == 0 || len(files) < 8 {
		t.Errorf("%d scripts, %d of them its own: too few", len(files), len(own))
	}
	runScripts(t, files, mysqlDatabase("mode=pessimistic")(t), true)
}

// TestKilledTransactionStopsItsCommand: KILL of the connection that holds the row. The
// command is dead, and dlock ends with 76, before the next holder's command starts: the
// commands themselves watch over that, by a kernel lock.
func TestKilledTransactionStopsItsCommand(t *testing.T) {
	t.Parallel()
	rounds := 5
	if os.Getenv("DLOCK_FULL") != "" {
		rounds = 25
	}
	const lanes = 4 // of rounds at the same time
	server := mysqltest.Start(t)
	url := server.URL("d") + "?mode=pessimistic"
	var all sync.WaitGroup
	for lane := range lanes {
		conn, dir := server.Conn("d"), t.TempDir()
		all.Go(func() {
			for range rounds {
				killOne(t, conn, dir, url, fmt.Sprint("j", lane))
			}
		})
	}
	all.Wait()
}

// killOne is one round: a holder whose connection is killed while another one waits.
func killOne(t *testing.T, conn *mysqltest.Conn, dir, url, name string) {
	in := filepath.Join(dir, "token")
	_ = os.Remove(in) // of the last round
	var said bytes.Buffer
	held := dlock(dir, url, "run", "--ttl", "10s", "--grace", "100ms", name, "--", "sh", "-c",
		"exec 9>>overlap; flock -n 9 || exit 9; trap '' TERM; echo $DLOCK_TOKEN >token.new; mv token.new token; while :; do sleep 0.01; done")
	held.Stderr = &said
	if err := held.Start(); err != nil {
		t.Error(err)
		return
	}
	token := ""
	for deadline := time.Now().Add(patience); token == "" && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(in) // it comes
		token = strings.TrimSpace(string(text))
	}
	next := dlock(dir, url, "run", "-w", "1m", name, "--", "flock", "-n", "overlap", "true")
	if err := next.Start(); err != nil {
		t.Error(err)
		return
	}
	time.Sleep(50 * time.Millisecond) // in most rounds it is in line by then; it may be later
	_ = conn.Try("KILL " + conn.One("SELECT IS_USED_LOCK('dlock/"+token+"')"))
	err := held.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 76 {
		t.Errorf("the holder ended with %v: %s", err, said.String())
	}
	if err := next.Wait(); err != nil {
		t.Errorf("the next one: %v (1: the command of the one before was alive)", err)
	}
}
