package testscripts

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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

// TestReadme pastes the shell blocks of the README into a fresh shell.
func TestReadme(t *testing.T) {
	n := 0
	for _, b := range blocks(t, "../README.md") {
		if b.language == "sh" {
			n++
			paste(t, "..", b.text)
		}
	}
	if n < 2 {
		t.Fatalf("%d shell blocks in the README", n)
	}
}

// TestDocs runs each block of the documentation that is no output (text): shell lines as
// they are, and of other files the command lines that somebody would run for them.
func TestDocs(t *testing.T) {
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	for _, page := range pages {
		for i, b := range blocks(t, page) {
			if b.language == "text" {
				continue
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
				paste(t, standIns(t), strings.Join(lines, "\n"))
			})
		}
	}
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
		return find(`^(?:\S+ +){5}(.*)$`)
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
	for _, name := range []string{"sync-files", "backup", "collect", "send-report", "deploy", "migrate", "work", "report", "restore"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// paste runs text in a shell in dir; programs there are found after our own.
func paste(t *testing.T, dir, text string) {
	t.Helper()
	c := exec.Command("sh", "-eu", "-c", text)
	c.Dir = dir
	c.Env = append(os.Environ(), "PATH="+binDir+":"+dir+":"+os.Getenv("PATH"),
		"DLOCK_BACKEND=file://"+filepath.Join(t.TempDir(), "locks"))
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, text, out)
	}
}
