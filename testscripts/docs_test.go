package testscripts

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend/backendtest/consultest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/backendtest/zktest"
)

// block is a fenced block of a page.
type block struct{ language, text string }

var fenced = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

func blocks(t *testing.T, page string) (list []block) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fenced.FindAllSubmatch(text, -1) {
		list = append(list, block{string(m[1]), string(m[2])})
	}
	return list
}

const readme = "../README.md"

// pages are all that tell somebody what to type.
func pages(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("%d pages in docs, %v", len(docs), err)
	}
	return append(docs, readme, "../CONTRIBUTING.md")
}

// TestPages runs each block of the pages that is no output (text): shell lines as they
// are, and of other files the command lines that somebody would run for them.
func TestPages(t *testing.T) {
	for _, page := range pages(t) {
		shell := 0
		for i, b := range blocks(t, page) {
			if b.language == "text" {
				continue
			}
			if b.language == "sh" {
				shell++
			}
			t.Run(fmt.Sprintf("%s %d %s", filepath.Base(page), i+1, b.language), func(t *testing.T) {
				t.Parallel()
				lines, ok := commandLines(b)
				if !ok {
					t.Fatalf("nobody knows how to run a block of %q; output is text", b.language)
				}
				if len(lines) == 0 {
					t.Fatalf("no command in it:\n%s", b.text)
				}
				pasteHere(t, withoutElsewhere(strings.Join(lines, "\n")))
			})
		}
		if page == readme && shell < 2 {
			t.Errorf("%d shell blocks in the README", shell)
		}
	}
}

// indented is a code block without a language, which nothing would run.
var indented = regexp.MustCompile(`(?m)^\n(?: {4}|\t)\S.*$`)

func TestPagesHaveFencedBlocksOnly(t *testing.T) {
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if found := indented.Find(fenced.ReplaceAll(text, nil)); found != nil {
			t.Errorf("%s: no test runs this block; fence it:%s", page, found)
		}
	}
}

// elsewhere are the lines that are not run as they stand there.
var elsewhere = []struct{ line, why string }{
	{"make test", "these tests are part of it"},
	{"go generate", "TestCheckedInFilesAreCurrent does what it does"},
	{"sudo apt install ./", "TestPackageIsInstalled installs that package, on a host of its own"},
	{"brew install dlock/tap/dlock", "needs a release"},
	{"go install github.com/dlock/dlock@latest", "needs a release"},
}

func withoutElsewhere(text string) string {
	var kept []string
lines:
	for line := range strings.Lines(text) {
		for _, e := range elsewhere {
			if strings.HasPrefix(line, e.line) {
				continue lines
			}
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "")
}

// pasteHere runs text where it works: in the clone if it makes something of it, and
// otherwise in a directory with all that the pages speak of.
func pasteHere(t *testing.T, text string) {
	t.Helper()
	if strings.Contains(text, "go run .") || strings.Contains(text, "make ") {
		paste(t, "..", t.TempDir(), text)
		return
	}
	dir := standIns(t)
	paste(t, dir, dir, withServices(t, dir, text))
}

// withServices puts servers that run, and directories that exist, in the places of those
// that the pages name.
func withServices(t *testing.T, dir, text string) string {
	t.Helper()
	for _, s := range []struct {
		named string
		start func() string
	}{
		{"redis://redis.example", func() string { return redistest.Start(t).URL() }},
		{"zk://zk1,zk2,zk3", func() string { return zktest.Start(t).URL() }},
		{"consul://localhost:8500", func() string { return consultest.Start(t).URL() }},
		{"mysql://dlock@db.example/locks?defaults-file=/etc/dlock/my.cnf", func() string { return mysqlDatabase("mode=table")(t)("", 1) }},
		{"file:///var/lock", func() string { return "file://" + dir }},
		{"/usr/local/bin/", func() string { return "" }},
		{"3f2a", func() string { return tokenPrefix(t, dir) }},
	} {
		if strings.Contains(text, s.named) {
			text = strings.ReplaceAll(text, s.named, s.start())
		}
	}
	return text
}

// tokenPrefix starts a run that somebody will want to end, and tells how its token begins.
func tokenPrefix(t *testing.T, dir string) string {
	t.Helper()
	c := exec.Command(filepath.Join(binDir, "dlock"), "run", "nightly", "--", "sh", "-c", "printf %.4s $DLOCK_TOKEN; exec sleep 600 >&-")
	c.Env = append(os.Environ(), "DLOCK_BACKEND="+here(dir))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	prefix := make([]byte, 4)
	if _, err := io.ReadFull(out, prefix); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _ = c.Wait(); c.ProcessState.ExitCode() != 76 {
			t.Errorf("the run whose lock was revoked ended with %v", c.ProcessState)
		}
	})
	return string(prefix)
}

// commandLines are what is run for a block.
func commandLines(b block) (lines []string, ok bool) {
	find := func(expression string) ([]string, bool) {
		var found []string
		for _, m := range regexp.MustCompile("(?m)"+expression).FindAllStringSubmatch(b.text, -1) {
			found = append(found, m[1])
		}
		return found, true
	}
	switch b.language {
	case "sh":
		return []string{b.text}, true
	case "crontab":
		return find(`^[^#\s]\S* +(?:\S+ +){4}(.*)$`)
	case "ini":
		return find(`^ExecStart=(.*)$`)
	case "yaml":
		return find(`(?:run: |command: |- )(dlock .*)$`)
	case "groovy":
		return find(`sh '(.*)'$`)
	case "make":
		return find(`^\t(.*)$`)
	case "dockerfile":
		return dockerCommand(b.text), true
	}
	return nil, false
}

// dockerCommand is what a container runs: its entry point and after it its command.
func dockerCommand(text string) []string {
	var words []string
	for _, m := range regexp.MustCompile(`(?m)^(?:ENTRYPOINT|CMD) (\[.*\])$`).FindAllStringSubmatch(text, -1) {
		var part []string
		if json.Unmarshal([]byte(m[1]), &part) == nil {
			words = append(words, part...)
		}
	}
	return []string{strings.Join(words, " ")}
}

// standIns makes a directory with a program for each that the pages run.
func standIns(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sync-files", "sync.sh", "backup", "backup.sh", "collect", "send-report", "deploy", "migrate", "work", "report", "restore"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// here is the lock service of a page that names none: files below dir.
func here(dir string) string { return "file://" + filepath.Join(dir, "locks") }

// paste runs text in a shell in dir; programs there are found after our own. Locks are in
// home unless text says otherwise.
func paste(t *testing.T, dir, home, text string) {
	t.Helper()
	c := exec.Command("sh", "-eu", "-c", text)
	c.Dir = dir
	c.Env = append(os.Environ(), "PATH="+binDir+":"+dir+":"+os.Getenv("PATH"), "DLOCK_BACKEND="+here(home))
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, text, out)
	}
}
