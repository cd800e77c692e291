package testscripts

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend/backendtest/daemon"
	"github.com/dlock/dlock/backend/backendtest/redistest"
)

// packages has the program as it is released, and the packages made of it.
var packages = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(filepath.Dir(binDir), "packages")
	if out, err := exec.Command("../tools/package", dir, "1.2.3").CombinedOutput(); err != nil {
		return "", fmt.Errorf("tools/package: %w\n%s", err, out)
	}
	return dir, nil
})

// released returns that directory. What is packaged is looked at, so that a change of it
// runs these tests again.
func released(t *testing.T) string {
	t.Helper()
	for _, pattern := range []string{"goreleaser.yaml", "tools/package", "tools/compress-man", "tools/nfpm/*", "man/*", "completions/*"} {
		files, err := filepath.Glob("../" + pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			if _, err := os.ReadFile(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	dir, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// host is the command that runs a script of testdata/hosts on a host of its own, with the
// package installed. The host sees dir as /mnt.
func host(t *testing.T, name, dir, script string) (program string, args []string) {
	t.Helper()
	path, err := filepath.Abs("testdata/hosts/host")
	if err != nil {
		t.Fatal(err)
	}
	return daemon.Find(t, "unshare", "apt-get install util-linux"), append(slices.Clone(namespaces), path, name, dir, script)
}

// namespaces are unshare's flags for a host whose processes end with it.
var namespaces = []string{"--mount", "--uts", "--pid", "--fork", "--kill-child"}

// shared makes a directory for hosts, with the package in it.
func shared(t *testing.T) string {
	t.Helper()
	packages := released(t)
	dir := daemon.Dir(t)
	debs, err := filepath.Glob(packages + "/dlock_*.deb")
	if err != nil || len(debs) != 1 {
		t.Fatalf("Debian packages: %q, %v", debs, err)
	}
	if err := os.Link(debs[0], filepath.Join(dir, filepath.Base(debs[0]))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPackageIsInstalled(t *testing.T) {
	t.Parallel()
	if unix.Geteuid() != 0 {
		t.Log("only root can install a package")
		return
	}
	program, args := host(t, "installed", shared(t), "installed")
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, program, args...).CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// The same crontab on two hosts: one of them runs the job, and neither mails anything but
// what the crontab itself prints.
func TestCronOnTwoHosts(t *testing.T) {
	t.Parallel()
	if unix.Geteuid() != 0 {
		t.Log("only root can run a cron daemon")
		return
	}
	daemon.Find(t, "cron", "apt-get install cron")
	dir := shared(t)
	server := redistest.Start(t)
	if err := os.WriteFile(filepath.Join(dir, "backend"), []byte(server.URL()), 0o600); err != nil {
		t.Fatal(err)
	}
	hosts := map[string]*daemon.Daemon{}
	for _, name := range []string{"web1", "web2"} {
		program, args := host(t, name, dir, "cron")
		hosts[name] = daemon.Start(t, filepath.Join(dir, name+".log"), program, args...)
	}
	c := &crons{t, dir, hosts}
	c.await("a job", func() bool { return len(c.runs()) > 0 })
	winner := c.runs()[0]
	loser := map[string]string{"web1": "web2", "web2": "web1"}[winner]
	c.await(loser+" to give up", func() bool { return len(c.mails(loser)) > 0 })
	if runs := c.runs(); len(runs) != 1 {
		t.Errorf("jobs ran on %q while the first was running", runs)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	running := len(c.mails(winner)) // later ticks of the winner's own gave up as well
	c.await(winner+"'s job to end", func() bool { return len(c.mails(winner)) > running })
	if _, err := os.Stat(filepath.Join(dir, "overlaps")); err == nil {
		t.Error("two jobs ran at once")
	}
}

// crons are cron daemons that share a directory.
type crons struct {
	t     *testing.T
	dir   string
	hosts map[string]*daemon.Daemon
}

// runs are the hosts on which the job has begun.
func (c *crons) runs() []string {
	text, _ := os.ReadFile(filepath.Join(c.dir, "runs")) // none yet
	return strings.Fields(string(text))
}

// mails are what cron has mailed on a host: what the crontab itself prints, and nothing
// of dlock's.
func (c *crons) mails(host string) (list []string) {
	files, _ := filepath.Glob(filepath.Join(c.dir, "mail."+host+".*[0-9]")) // fails only for a bad pattern
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		if _, body, _ := strings.Cut(string(text), "\n\n"); body != "exit code 0\n" {
			c.t.Fatalf("cron mailed:\n%s", text)
		}
		list = append(list, string(text))
	}
	return list
}

// await waits for what happens at a full minute, on a machine that may be busy.
func (c *crons) await(what string, happened func() bool) {
	c.t.Helper()
	for limit := time.Now().Add(5 * patience); !happened(); time.Sleep(50 * time.Millisecond) {
		for name, host := range c.hosts {
			select {
			case <-host.Exited():
				c.t.Fatalf("%s has ended:\n%s", name, host.Log())
			default:
			}
		}
		if time.Now().After(limit) {
			c.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// The image from scratch has dlock alone: as process 1 it needs no more than what each
// container has.
func TestProcess1FromScratch(t *testing.T) {
	t.Parallel()
	if unix.Geteuid() != 0 {
		t.Log("only root can make a PID namespace")
		return
	}
	program, err := os.ReadFile(filepath.Join(released(t), "dlock"))
	if err != nil {
		t.Fatal(err)
	}
	image := t.TempDir()
	for _, dir := range []string{"usr/bin", "proc", "dev"} {
		if err := os.MkdirAll(filepath.Join(image, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(image, "usr/bin/dlock"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	c := exec.CommandContext(ctx, "unshare", append(slices.Clone(namespaces), "sh", "-euc",
		`mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"; exec chroot "$1" /usr/bin/dlock run worker -- dlock inspect worker`, "sh", image)...)
	c.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/bin"}
	out, err := c.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("(pid 1)")) {
		t.Errorf("%v\n%s", err, out)
	}
}
