package testscripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// TestReadme pastes the shell blocks of the README into a fresh shell.
func TestReadme(t *testing.T) { paste(t, "../README.md") }

// TestJSONPage does the same with the page about what programs read.
func TestJSONPage(t *testing.T) { paste(t, "../docs/json.md") }

func paste(t *testing.T, page string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	blocks := shellBlock.FindAllSubmatch(text, -1)
	if len(blocks) < 2 {
		t.Fatalf("%d shell blocks in %s", len(blocks), page)
	}
	for _, block := range blocks {
		c := exec.Command("sh", "-eu", "-c", string(block[1]))
		c.Dir = ".."
		c.Env = append(os.Environ(), "PATH="+binDir+":"+os.Getenv("PATH"),
			"DLOCK_BACKEND=file://"+filepath.Join(t.TempDir(), "locks"))
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, block[1], out)
		}
	}
}
