package cmd

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// withoutVariables hides the variables of whoever runs the tests.
func withoutVariables(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "DLOCK_") || name == "SHELL" {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
}

// parse executes one subcommand with its arguments.
func parse(c *cobra.Command, args []string) error {
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	return c.Execute()
}

func quietApp() *app { return newApp(strings.NewReader(""), io.Discard, io.Discard) }

func TestRunFlags(t *testing.T) {
	withoutVariables(t)
	for line, change := range map[string]func(*runOptions){
		"j true":                  func(*runOptions) {},
		"j -- true":               func(*runOptions) {},
		"-- j true":               func(*runOptions) {},
		"-o j true":               func(*runOptions) {},
		"-n j true":               func(o *runOptions) { o.noWait = true },
		"--nb j true":             func(o *runOptions) { o.noWait = true },
		"--nonblock j true":       func(o *runOptions) { o.noWait = true },
		"-w 0 j true":             func(o *runOptions) { o.noWait, o.waitSet = true, true },
		"-w 5m j true":            func(o *runOptions) { o.wait, o.waitSet = duration(5*time.Minute), true },
		"--timeout 1.5 j true":    func(o *runOptions) { o.wait, o.waitSet = duration(1500*time.Millisecond), true },
		"-s j true":               func(o *runOptions) { o.shared = true },
		"-x j true":               func(o *runOptions) { o.exclusive = true },
		"-e j true":               func(o *runOptions) { o.exclusive = true },
		"--slots 3 j true":        func(o *runOptions) { o.slots, o.slotsSet = 3, true },
		"-E 0 j true":             func(o *runOptions) { o.busyCode = 0 },
		"--ttl 1h j true":         func(o *runOptions) { o.ttl = duration(time.Hour) },
		"--grace 0 j true":        func(o *runOptions) { o.grace, o.graceSet = 0, true },
		"--min-hold 30 j true":    func(o *runOptions) { o.minHold = duration(30 * time.Second) },
		"--max-run 2h j true":     func(o *runOptions) { o.maxRun = duration(2 * time.Hour) },
		"--reentrant j true":      func(o *runOptions) { o.reentrant = true },
		"--on-lost warn j true":   func(o *runOptions) { o.onLost = "warn" },
		"--survivors kill j true": func(o *runOptions) { o.survivors = "kill" },
		"--reason why j true":     func(o *runOptions) { o.reason = "why" },
		"j true -n --ttl 5":       func(o *runOptions) { o.command = []string{"true", "-n", "--ttl", "5"} },
		"j -- true -- x":          func(o *runOptions) { o.command = []string{"true", "--", "x"} },
		"j -- -- x":               func(o *runOptions) { o.command = []string{"--", "x"} },
		"j -n true":               func(o *runOptions) { o.command = []string{"-n", "true"} },
		"j -c line":               func(o *runOptions) { o.command = []string{"/bin/sh", "-c", "line"} },
		"j --command line":        func(o *runOptions) { o.command = []string{"/bin/sh", "-c", "line"} },
		"j -- -c line":            func(o *runOptions) { o.command = []string{"-c", "line"} },
		"-- -n true":              func(o *runOptions) { o.name = "-n" },
	} {
		want := &runOptions{
			lockFlags: lockFlags{ttl: duration(30 * time.Second), busyCode: exitBusy},
			report:    reportFlags{fd: -1},
			name:      "j", command: []string{"true"}, grace: duration(5 * time.Second), onLost: "kill", survivors: "wait",
		}
		change(want)
		var got *runOptions
		err := parse(newRunCmd(quietApp(), func(o *runOptions) error { got = o; return nil }), strings.Fields(line))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("run %s:\n got %+v, %v\nwant %+v", line, got, err, want)
		}
	}
}

func TestRunVariables(t *testing.T) {
	withoutVariables(t)
	t.Setenv("DLOCK_TTL", "2m")
	t.Setenv("DLOCK_GRACE", "7")
	t.Setenv("SHELL", "/bin/other")
	var got *runOptions
	run := func(o *runOptions) error { got = o; return nil }
	if err := parse(newRunCmd(quietApp(), run), []string{"--grace", "8s", "j", "-c", "x"}); err != nil {
		t.Fatal(err)
	}
	if got.ttl != duration(2*time.Minute) || got.grace != duration(8*time.Second) || got.command[0] != "/bin/other" {
		t.Errorf("got %+v, want the variables, and the flag where there is one", got)
	}
}

func TestOtherFlags(t *testing.T) {
	withoutVariables(t)
	lock := lockFlags{ttl: duration(30 * time.Second), busyCode: exitBusy}
	token := tokenFlags{name: "j", token: "t"}
	var got any
	a := quietApp()
	for _, c := range []struct {
		command *cobra.Command
		line    string
		want    any
	}{
		{newAcquireCmd(a, func(o *acquireOptions) error { got = *o; return nil }), "j", acquireOptions{lockFlags: lock, name: "j"}},
		{newAcquireCmd(a, func(o *acquireOptions) error { got = *o; return nil }), "j --json", acquireOptions{lockFlags: lock, name: "j", json: true}},
		{newRenewCmd(a, func(o *renewOptions) error { got = *o; return nil }), "j t", renewOptions{tokenFlags: token}},
		{newRenewCmd(a, func(o *renewOptions) error { got = *o; return nil }), "--ttl 5s j t", renewOptions{tokenFlags: token, ttl: duration(5 * time.Second), ttlSet: true}},
		{newReleaseCmd(a, func(o *releaseOptions) error { got = *o; return nil }), "j t", releaseOptions{tokenFlags: token}},
		{newReleaseCmd(a, func(o *releaseOptions) error { got = *o; return nil }), "--force --now -y j t", releaseOptions{tokenFlags: token, force: true, now: true, yes: true}},
		{newInspectCmd(a, func(o *inspectOptions) error { got = *o; return nil }), "a b --json", inspectOptions{names: []string{"a", "b"}, json: true, format: formatJSON, interval: duration(2 * time.Second)}},
	} {
		got = nil
		if err := parse(c.command, strings.Fields(c.line)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %s:\n got %+v, %v\nwant %+v", c.command.Name(), c.line, got, err, c.want)
		}
	}
}

func TestMode(t *testing.T) {
	for want, f := range map[string]lockFlags{
		"exclusive": {}, "shared": {shared: true}, "slots 3": {slots: 3, slotsSet: true},
	} {
		if got := f.mode().String(); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
}

func TestPlaceOfBackend(t *testing.T) {
	withoutVariables(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	flagFile, variableFile := write("flag", "file:///flag-file\n"), write("variable", "file:///variable-file")
	machine, empty := write("machine", " \nfile:///machine "), write("empty", "\n")
	for _, c := range []struct {
		what, args, variable, variableFile, machine, want string // no want: usage
	}{
		{"flag first", "-b file:///flag", "file:///variable", variableFile, machine, "file:///flag"},
		{"flag file", "--backend-file " + flagFile, "file:///variable", variableFile, machine, "file:///flag-file"},
		{"both flags", "-b file:///flag --backend-file " + flagFile, "", "", machine, ""},
		{"variable", "", "file:///variable", variableFile, machine, "file:///variable"},
		{"empty variable", "", "empty", variableFile, machine, ""},
		{"variable file", "", "", variableFile, machine, "file:///variable-file"},
		{"empty variable file", "", "", empty, machine, ""},
		{"missing variable file", "", "", dir + "/none", machine, ""},
		{"machine", "", "", "", machine, "file:///machine"},
		{"empty machine file", "", "", "", empty, ""},
		{"unreadable machine file", "", "", "", dir, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			if c.variable == "empty" {
				t.Setenv("DLOCK_BACKEND", "")
			} else if c.variable != "" {
				t.Setenv("DLOCK_BACKEND", c.variable)
			}
			if c.variableFile != "" {
				t.Setenv("DLOCK_BACKEND_FILE", c.variableFile)
			}
			got, code := backendOf(c.machine, strings.Fields(c.args))
			if got != c.want || c.want == "" && code != exitUsage {
				t.Errorf("got %q and code %d, want %q", got, code, c.want)
			}
		})
	}
}

// backendOf is the address that dlock chooses, and the exit code if it does not.
func backendOf(machineFile string, args []string) (address string, code int) {
	a := quietApp()
	a.machineFile = machineFile
	root := newRootCmd(a)
	root.AddCommand(&cobra.Command{Use: "which", RunE: func(*cobra.Command, []string) error {
		b, err := a.open()
		if err == nil {
			address = b.Limits().Address
		}
		return err
	}})
	root.SetArgs(append(args, "which"))
	return address, a.exitCode(root.Execute())
}

func TestNoMachineFileMeansTheDefault(t *testing.T) {
	withoutVariables(t)
	got, code := backendOf(filepath.Join(t.TempDir(), "none"), nil)
	if code != 0 || !strings.HasSuffix(got, "/dlock") {
		t.Errorf("got %q, code %d", got, code)
	}
}

func TestVariablesOfThePlace(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want func(place) bool // nil: an error that names the variable
	}{
		{map[string]string{"DLOCK_QUIET": "1"}, func(p place) bool { return p.quiet }},
		{map[string]string{"DLOCK_QUIET": "no"}, func(p place) bool { return !p.quiet }},
		{map[string]string{"DLOCK_QUIET": ""}, func(p place) bool { return !p.quiet }},
		{map[string]string{"DLOCK_QUIET": "perhaps"}, nil},
		{map[string]string{"DLOCK_LOG_FORMAT": "json"}, func(p place) bool { return p.logFormat == "json" }},
		{map[string]string{"DLOCK_LOG_FORMAT": "xml"}, nil},
		{map[string]string{"DLOCK_NAMESPACE": "team"}, func(p place) bool { return p.namespace == "team" && p.namespaceSet }},
		{map[string]string{"DLOCK_NAMESPACE": ""}, func(p place) bool { return p.namespace == "" && p.namespaceSet }},
		{map[string]string{"DLOCK_NAMESPACE": "\x01"}, nil},
	} {
		root := newRootCmd(quietApp())
		p := place{logFormat: "text"}
		err := p.fromEnv(root.PersistentFlags(), func(name string) (string, bool) { v, ok := c.env[name]; return v, ok })
		if c.want == nil != (err != nil) || c.want != nil && !c.want(p) {
			t.Errorf("%v: %+v, %v", c.env, p, err)
		}
	}
}

func TestEveryFlagIsExplained(t *testing.T) {
	var out bytes.Buffer
	a := newApp(strings.NewReader(""), &out, io.Discard)
	for _, c := range newRootCmd(a).Commands() {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: short help %q", c.Name(), c.Short)
		}
		out.Reset()
		if code := a.main([]string{c.Name(), "--help"}); code != 0 || out.Len() == 0 {
			t.Errorf("%s --help: code %d, %d bytes", c.Name(), code, out.Len())
		}
	}
}
