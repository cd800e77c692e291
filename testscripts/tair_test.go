package testscripts

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/dlock/dlock/backend/backendtest/tairtest"
)

// beyondTair is what a script does that tair:// has not: shared holds, slots, a line.
var beyondTair = regexp.MustCompile(`-s |--shared|--slots|ahead`)

// TestTairScripts runs the scripts that need no more than exclusive holds, and Tair's own,
// against the imitation of a Tair.
func TestTairScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "tair", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Glob(filepath.Join("testdata", "all", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	own := len(files)
	for _, f := range all {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !beyondTair.Match(text) {
			files = append(files, f)
		}
	}
	if own == 0 || len(files) < 12 {
		t.Errorf("%d scripts, %d of them its own: too few", len(files), own)
	}
	addr := tairtest.Start(t, "--databases", "1000").Addr()
	runScripts(t, files, func(_ string, n int) string { return fmt.Sprintf("tair://%s/%d", addr, n) }, true)
}
