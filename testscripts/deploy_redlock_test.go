package testscripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend/backendtest/redistest"
)

// withURL runs dlock with a URL that stands in a file.
func withURL(t *testing.T, url, line string) (code int, said string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(file, []byte(url), 0o600); err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", "unset DLOCK_BACKEND; exec dlock --backend-file "+file+" "+line)
	out, _ := c.CombinedOutput()
	return c.ProcessState.ExitCode(), string(out)
}

// TestRedlockPasswords: each of three servers has its own. A wrong one is done without, two
// are refused, and none is ever shown.
func TestRedlockPasswords(t *testing.T) {
	t.Parallel()
	var servers []*redistest.Server
	for i := range 3 {
		servers = append(servers, redistest.Start(t, "--requirepass", fmt.Sprint("secret", i)))
	}
	with := func(passwords ...string) string {
		var hosts []string
		for i, s := range servers {
			hosts = append(hosts, ":"+passwords[i]+"@"+s.Addr())
		}
		return "redlock://" + strings.Join(hosts, ",")
	}
	for _, step := range []struct {
		url, line string
		code      int
		words     string
	}{
		{with("secret0", "secret1", "secret2"), `-v run j -- sh -c 'tr "\0" "\n" </proc/$PPID/cmdline; env'`, 0, "DLOCK_FENCE="},
		{with("secret0", "secret9", "secret2"), "run -n j -- true", 0, ""},
		{with("secret0", "secret9", "secret2"), "-v run -n j -- sleep 1", 0, servers[1].Addr() + " refuses this user name or password"},
		{with("secret0", "secret9", "secret2"), "acquire --ttl 1h k", 0, "-"},
		{with("secret0", "secret9", "secret2"), "inspect", 0, "refuses this user name or password"},
		{with("secret8", "secret9", "secret2"), "run -n j -- echo ran", 77, "refuses this user name or password"},
		{with("secret8", "secret9", "secret2"), "run -w 1m j -- echo ran", 77, "refuses this user name or password"},
		{with("secret8", "secret9", "secret2"), "inspect j", 77, "refuses this user name or password"},
	} {
		code, said := withURL(t, step.url, step.line)
		if code != step.code || !strings.Contains(said, step.words) || strings.Contains(said, "secret") || strings.Contains(said, "ran\n") {
			t.Errorf("dlock %s: exit code %d, want %d and %q, and no secret\n%s", step.line, code, step.code, step.words, said)
		}
	}
}

// TestRedlockTLS: three servers that speak nothing but TLS, and want a certificate.
func TestRedlockTLS(t *testing.T) {
	t.Parallel()
	s := redistest.SeveralTLS(t, 3)
	url := fmt.Sprintf("redlocks://%s,%s,%s?ca=%s", s[0].Addr(), s[1].Addr(), s[2].Addr(), s[0].CA)
	mine := fmt.Sprintf("&cert=%s&key=%s", s[0].Cert, s[0].Key)
	for _, step := range []struct {
		url, line string
		code      int
		words     string
	}{
		{url + mine, "run -n j -- echo ran", 0, "ran"},
		{url + mine, "acquire --ttl 1h k", 0, "-"},
		{url + mine, "run -n k -- true", 75, "busy"},
		{url + mine, "inspect k", 0, "held"},
		{url, "run -n j -- echo ran", 69, "certificate"},
		{url + mine + "&server-name=other", "run -n j -- echo ran", 69, "certificate"},
	} {
		if code, said := withURL(t, step.url, step.line); code != step.code || !strings.Contains(said, step.words) {
			t.Errorf("dlock %s: exit code %d, want %d and %q\n%s", step.line, code, step.code, step.words, said)
		}
	}
}
