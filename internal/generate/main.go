// Command generate writes the completion scripts and the manual pages that packages
// contain, from the command line itself. They are checked in, so that a package can be
// made from the tree alone; a test compares.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dlock/dlock/cmd"
)

// completions are the files of the shells.
var completions = map[string]string{
	"bash":       "completions/dlock.bash",
	"zsh":        "completions/dlock.zsh",
	"fish":       "completions/dlock.fish",
	"powershell": "completions/dlock.ps1",
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run() error {
	all, err := files()
	if err != nil {
		return err
	}
	for name, text := range all {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files returns what is generated, by its path in the tree.
func files() (map[string][]byte, error) {
	all := map[string][]byte{}
	for shell, name := range completions {
		var out, complaints bytes.Buffer
		if code := cmd.Main([]string{"completion", shell}, nil, &out, &complaints); code != 0 {
			return nil, fmt.Errorf("dlock completion %s: exit code %d: %s", shell, code, &complaints)
		}
		all[name] = out.Bytes()
	}
	root := cmd.Root()
	for _, c := range append(root.Commands(), root) {
		if c.IsAvailableCommand() || c == root {
			all["man/"+pageName(c)+".1"] = page(c)
		}
	}
	return all, nil
}
