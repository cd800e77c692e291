// Package testscripts drives the built binary as a person would: each .txtar file
// below testdata is one behaviour.
package testscripts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience bounds waits for what must happen; it decides nothing when all is well.
const patience = 60 * time.Second

// binDir holds the dlock that was built for this test run.
var binDir string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "dlock-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // other users run it too
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binDir = dir
	args := append(append([]string{"build"}, raceFlags...), "-o", filepath.Join(dir, "dlock"), "..")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building dlock: %v\n%s", err, out)
		return 1
	}
	// The scripts, and the commands that are ours, find this dlock.
	if err := os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("DLOCK_BACKEND", "file://"+filepath.Join(env.WorkDir, "locks"))
			env.Values[backgroundKey{}] = &background{env: env.Vars, processes: map[string]*process{}}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": cmdCode, "until": cmdUntil, "json": cmdJSON,
			"start": cmdStart, "signal": cmdSignal, "ended": cmdEnded,
			"code-as": cmdCodeAs,
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}
