package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/dlock/dlock/cmd"
)

const top = "../.."

func TestCheckedInFilesAreCurrent(t *testing.T) {
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range all {
		if got, err := os.ReadFile(filepath.Join(top, name)); err != nil || string(got) != string(want) {
			t.Errorf("%s is not what the command line says now (%v); run: go generate", name, err)
		}
	}
	for _, dir := range []string{"man", "completions"} {
		entries, err := os.ReadDir(filepath.Join(top, dir))
		if err != nil {
			t.Error(err)
		}
		for _, e := range entries {
			if name := dir + "/" + e.Name(); all[name] == nil {
				t.Errorf("%s is no longer generated; delete it", name)
			}
		}
	}
}

// What the flags of all commands say of the environment is in the page of dlock(1).
func TestPageHasEveryVariable(t *testing.T) {
	all, err := files()
	if err != nil {
		t.Fatal(err)
	}
	page, n := string(all["man/dlock.1"]), 0
	look := func(f *pflag.Flag) {
		for _, name := range regexp.MustCompile(`\$(DLOCK_\w+)`).FindAllStringSubmatch(f.Usage, -1) {
			n++
			if !strings.Contains(page, "\n.B "+name[1]+"\n") {
				t.Errorf("no %s, which --%s names", name[1], f.Name)
			}
		}
	}
	root := cmd.Root()
	root.PersistentFlags().VisitAll(look)
	for _, c := range root.Commands() {
		c.Flags().VisitAll(look)
	}
	if n == 0 {
		t.Error("no flag names a variable")
	}
}

func TestPagesAreGoodRoff(t *testing.T) {
	mandoc, err := exec.LookPath("mandoc")
	if err != nil {
		t.Fatal("mandoc is missing: apt-get install mandoc")
	}
	pages, err := filepath.Glob(top + "/man/*.1")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v", len(pages), err)
	}
	out, _ := exec.Command(mandoc, append([]string{"-Tlint", "-Wwarning"}, pages...)...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, `missing date, using ""`) { // it is left out
			t.Error(strings.TrimSpace(line))
		}
	}
}
