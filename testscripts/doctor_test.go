package testscripts

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/backendtest/relay"
)

// doctor examines a service and wants a line, and an exit code.
func doctor(t *testing.T, address, line string, code int, args ...string) {
	t.Helper()
	out, err := exec.Command("dlock", append([]string{"-b", address, "doctor"}, args...)...).Output()
	exit := (*exec.ExitError)(nil)
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(out)), " ")
	if got != code || !strings.Contains(text, line) || strings.Contains(text, "secret") {
		t.Errorf("%s: code %d, want %d and %q:\n%s", address, got, code, line, out)
	}
}

// TestDoctorOfRights gives users of Redis less and less.
func TestDoctorOfRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	for user, rules := range map[string][]any{
		"lock":  {"~dlock:*", "&dlock:*", "+@all", "-@dangerous", "+info"},
		"mute":  {"~dlock:*", "resetchannels", "+@all", "-@dangerous", "+info"},
		"guest": {"~dlock:*", "&dlock:*", "+@all", "-@dangerous", "+info", "-set"},
	} {
		if err := client.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "reset", "on", ">secret"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	at := func(user string) string { return "redis://" + user + ":secret@" + server.Addr() }
	doctor(t, at("lock"), "ok hand-over a waiter got the lock", 0)
	doctor(t, at("mute"), "fail hand-over", 69)
	doctor(t, at("guest"), "fail take", 69)
	doctor(t, at("nobody"), "fail authenticated", 69)
}

// TestDoctorGivesBack interrupts a doctor that has taken its lock.
func TestDoctorGivesBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := relay.New(t, server.Addr())
	r.Delay(300 * time.Millisecond) // so that four more renewals take seconds
	cmd := exec.Command("dlock", "-b", "redis://"+r.Addr(), "doctor", "--ttl", "1h")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := open(t, server.URL())
	var probe backend.Holder
	backendtest.Eventually(t, "it has renewed its lock", func() bool {
		s := backendtest.InspectOne(t, b, "dlock-doctor")
		if len(s.Holders) != 1 {
			return false
		}
		before := probe
		probe = s.Holders[0]
		return before.Token == probe.Token && before.Left < probe.Left
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 143 {
		t.Errorf("code %d, want 143", code)
	}
	for _, h := range backendtest.InspectOne(t, b, "dlock-doctor").Holders {
		if h.Token == probe.Token {
			t.Errorf("left behind: %+v", h)
		}
	}
}

func TestDoctorOfASlowService(t *testing.T) {
	t.Parallel()
	r := relay.New(t, redistest.Start(t).Addr())
	r.Delay(400 * time.Millisecond) // each way, so that much and more
	doctor(t, "redis://"+r.Addr(), "warn round trip a renewal takes up to", 0, "--ttl", "12s")
	r.Refuse()
	doctor(t, "redis://"+r.Addr(), "fail reachable", 69)
}
