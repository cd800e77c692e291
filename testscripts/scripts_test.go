// Package testscripts drives the built binary as a person would: each .txtar file
// below testdata is one behaviour, of every backend or of one.
package testscripts

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/backendtest/zktest"

	_ "github.com/dlock/dlock/cmd" // the program under test: its changes run these tests again
)

// patience bounds waits for what must happen; it decides nothing when all is well.
const patience = 60 * time.Second

// binDir holds the dlock that was built for this test run, workDir the directories
// of the scripts.
var binDir, workDir string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dlock-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := prepare(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// As from cron, also when these tests run in a terminal: there dlock would share
	// its process group with us. A group leader cannot leave, and stays.
	_, _ = unix.Setsid()
	// Under nohup(1) our children would ignore it; one that we catch is theirs by default.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	return m.Run()
}

// prepare builds dlock below dir, where the scripts find it before any other.
func prepare(dir string) error {
	binDir, workDir = filepath.Join(dir, "bin"), filepath.Join(dir, "work")
	for _, d := range []string{dir, binDir, workDir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
		if err := os.Chmod(d, 0o755); err != nil { // scripts run commands as other users, too
			return err
		}
	}
	args := append(append([]string{"build"}, raceFlags...), "-o", binDir+"/dlock", "..")
	build := exec.Command("go", args...)
	if len(raceFlags) == 0 {
		build.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is released
	}
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building dlock: %w\n%s", err, out)
	}
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil { // the race detector's second at each exit
		return err
	}
	return os.Setenv("PATH", binDir+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// place gives the URL of an empty lock service: with a directory of one's own, and a
// number that no other caller has.
type place func(dir string, n int) string

// backends are the lock services that the tests run against. Each is started for one
// test, and tells where its users find an empty place.
var backends = []struct {
	name  string
	lease bool // a lock is a lease, and so outlives a dlock that is killed
	start func(*testing.T) place
}{
	{"file", false, func(*testing.T) place { return directory }},
	{"redis", true, redisDatabase},
	{"redlock", true, redlockDatabases},
	{"mysql", true, mysqlDatabase("mode=table")},
	{"mysql-optimistic", true, mysqlDatabase("mode=optimistic")},
	{"zookeeper", true, zooKeeperChroot},
	{"consul", true, consulPrefix},
}

func directory(dir string, _ int) string { return "file://" + filepath.Join(dir, "locks") }

// redisDatabase starts a server; each script has a database of its own.
func redisDatabase(t *testing.T) place {
	url := redistest.Start(t, "--databases", "1000").URL()
	return func(_ string, n int) string { return fmt.Sprintf("%s/%d", url, n) }
}

// redlockDatabases starts three servers; each script has a database of its own on each.
func redlockDatabases(t *testing.T) place {
	var addrs []string
	for range 3 {
		addrs = append(addrs, redistest.Start(t, "--databases", "1000").Addr())
	}
	return func(_ string, n int) string { return fmt.Sprintf("redlock://%s/%d", strings.Join(addrs, ","), n) }
}

// zooKeeperChroot starts a server; each script has a node of its own.
func zooKeeperChroot(t *testing.T) place {
	url := zktest.Start(t).URL()
	return func(_ string, n int) string { return fmt.Sprintf("%s/%d", url, n) }
}

// TestScripts runs the scripts below testdata/all for every backend, and those in the
// directory of a backend's name for that one.
func TestScripts(t *testing.T) {
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			var files []string
			for _, dir := range []string{"all", b.name} {
				found, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
				if err != nil {
					t.Fatal(err)
				}
				files = append(files, found...)
			}
			runScripts(t, files, b.start(t), b.lease)
		})
	}
}

func runScripts(t *testing.T, files []string, url place, lease bool) {
	var scripts atomic.Int32
	root, err := os.MkdirTemp(workDir, "") // the scripts of several backends run at the same time
	if err == nil {
		err = os.Chmod(root, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Files:               files,
		WorkdirRoot:         root,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("DLOCK_BACKEND", url(env.WorkDir, int(scripts.Add(1))))
			env.Defer(func() { os.RemoveAll(env.WorkDir) }) // after the processes of the script
			env.Values[backgroundKey{}] = &background{env: env.Vars, processes: map[string]*process{}}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": cmdCode, "until": cmdUntil, "json": cmdJSON, "fields": cmdFields,
			"start": cmdStart, "signal": cmdSignal, "ended": cmdEnded,
			"gone": cmdGone,
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Geteuid() == 0, nil
			case "lease":
				return lease, nil
			case "consul": // a lease lasts a day at most
				return strings.HasSuffix(t.Name(), "/consul"), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}
