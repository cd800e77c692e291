package daemon_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/daemon"
	"github.com/dlock/dlock/internal/proc"
)

// TestKilledTestLeavesNoDaemon runs itself once more, as a test that is killed.
func TestKilledTestLeavesNoDaemon(t *testing.T) {
	const role = "DAEMON_TEST_IS_KILLED"
	if os.Getenv(role) != "" {
		fmt.Println(daemon.Start(t, filepath.Join(t.TempDir(), "log"), "/bin/sleep", "1000").PID())
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledTestLeavesNoDaemon$")
	cmd.Env = append(os.Environ(), role+"=1", "TMPDIR="+t.TempDir())
	out, _ := cmd.Output() // it was killed
	var pid int
	if _, err := fmt.Sscan(string(out), &pid); err != nil {
		t.Fatalf("the killed test says %q: %v", out, err)
	}
	backendtest.Eventually(t, "the daemon is dead", func() bool {
		p, err := proc.Get(pid)
		return err != nil || p.Zombie
	})
}

func TestKilledDaemonIsGone(t *testing.T) {
	d := daemon.Start(t, filepath.Join(t.TempDir(), "log"), "/bin/sh", "-c", "echo ready; exec sleep 1000")
	backendtest.Eventually(t, "its output", func() bool { return d.Log() == "ready\n" })
	d.Stop()
	d.Kill()
	if p, err := proc.Get(d.PID()); err == nil {
		t.Errorf("%+v lives", p)
	}
}
