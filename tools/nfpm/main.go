// Command nfpm makes packages of the dlock in a directory, as the tree's goreleaser.yaml
// describes them, and leaves them there. It is what of goreleaser can be built in a minute.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
	"gopkg.in/yaml.v3"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: nfpm TREE DIRECTORY VERSION")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "nfpm:", err)
		os.Exit(1)
	}
}

func run(tree, dir, version string) error {
	if err := os.Chdir(tree); err != nil { // what goreleaser.yaml names is seen from there
		return err
	}
	text, err := os.ReadFile("goreleaser.yaml")
	if err != nil {
		return err
	}
	config, formats, err := parse(text, filepath.Join(dir, "dlock"), version)
	if err != nil {
		return fmt.Errorf("goreleaser.yaml: %w", err)
	}
	for _, format := range formats {
		if err := write(config, format, dir); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

// parse reads how goreleaser would package the binary for this machine. What it does not
// know is an error, so that nothing is packaged in another way.
func parse(text []byte, binary, version string) (*nfpm.Config, []string, error) {
	var goreleaser struct {
		Packages []struct {
			Name     string         `yaml:"package_name"`
			File     string         `yaml:"file_name_template"`
			Formats  []string       `yaml:"formats"`
			Bindir   string         `yaml:"bindir"`
			MTime    string         `yaml:"mtime"`
			Depends  []string       `yaml:"dependencies"`
			Contents []any          `yaml:"contents"`
			Same     map[string]any `yaml:",inline"` // what nfpm calls the same
		} `yaml:"nfpms"`
	}
	if err := yaml.Unmarshal(text, &goreleaser); err != nil {
		return nil, nil, err
	}
	if len(goreleaser.Packages) != 1 {
		return nil, nil, fmt.Errorf("%d entries in nfpms, want one", len(goreleaser.Packages))
	}
	p := goreleaser.Packages[0]
	settings := p.Same
	settings["name"] = p.Name
	settings["arch"] = architecture()
	settings["version"] = version
	settings["depends"] = p.Depends
	settings["contents"] = append(p.Contents, map[string]any{
		"src": binary, "dst": p.Bindir + "/dlock", "file_info": map[string]any{"mode": 0o755},
	})
	text, err := yaml.Marshal(settings)
	if err != nil {
		return nil, nil, err
	}
	config, err := nfpm.Parse(bytes.NewReader(text))
	return &config, p.Formats, err
}

// architecture is this machine's, as nfpm calls it.
func architecture() string {
	if runtime.GOARCH == "arm" {
		return "arm7"
	}
	return runtime.GOARCH
}

func write(config *nfpm.Config, format, dir string) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, packager.ConventionalFileName(nfpm.WithDefaults(info)))
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(packager.Package(info, f), f.Close()); err != nil {
		return err
	}
	fmt.Println(name)
	return nil
}
