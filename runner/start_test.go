//go:build linux

package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// script writes an executable file.
func script(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "script")
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	plain := script(t, "x", 0o644)
	program := script(t, "#!/bin/sh\n", 0o755)
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "/nonexistent:"+dir+":"+filepath.Dir(plain)+":"+filepath.Dir(program))
	tests := []struct {
		name, path string
		code       int
	}{
		{"script", program, 0}, // the one that cannot be executed is passed over
		{program, program, 0},
		{plain, "", 126},
		{dir, "", 126},
		{"folder", "", 126},
		{"nowhere", "", 127},
		{"/nonexistent", "", 127},
		{plain + "/x", "", 127},
		{"", "", 127},
		{"/dev/null", "", 126},
	}
	for _, test := range tests {
		path, err := Find(test.name)
		var start *StartError
		switch {
		case test.code == 0 && (err != nil || path != test.path):
			t.Errorf("Find(%q) = %q, %v; want %q", test.name, path, err, test.path)
		case test.code != 0 && (!errors.As(err, &start) || start.Code != test.code):
			t.Errorf("Find(%q) = %q, %v; want code %d", test.name, path, err, test.code)
		}
	}
}

func TestFindLooksIntoTheWorkingDirectory(t *testing.T) {
	t.Chdir(filepath.Dir(script(t, "#!/bin/sh\n", 0o755)))
	t.Setenv("PATH", "/nonexistent:")
	if path, err := Find("script"); path != "./script" || err != nil {
		t.Errorf("Find = %q, %v", path, err)
	}
}

func TestScriptWithoutInterpreterIsRunByTheShell(t *testing.T) {
	r := newRun(t, "", script(t, "echo \"$# $1\"\nexit 8\n", 0o755), "a b", "c")
	r.launch()
	if got := r.finish(); got.Code != 8 {
		t.Errorf("result %+v, want 8", got)
	}
	if got := r.stdout.String(); got != "2 a b\n" {
		t.Errorf("output %q", got)
	}
}

func TestWhatCannotBeExecuted(t *testing.T) {
	foreign := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xf7\x00" + strings.Repeat("\x00", 100)
	tests := []struct {
		content, message string
	}{
		{foreign, "neither a script nor a program"},
		{"ab\x00cd", "neither a script nor a program"},
		{"#!/nonexistent/python -u\n", `"/nonexistent/python" is missing`},
		{"#! /bin/sh\r\n", `"/bin/sh\r" is missing`},
	}
	for _, test := range tests {
		r := newRun(t, "", script(t, test.content, 0o755))
		r.launch()
		r.ended()
		if got := r.ProcessState.ExitCode(); got != 126 {
			t.Errorf("%q: exit %d, want 126", test.content, got)
		}
		rec := r.await("an error", func(rec record) bool { return rec.Error != "" })
		if !strings.Contains(rec.Error, test.message) {
			t.Errorf("%q: %s", test.content, rec.Error)
		}
		eventually(t, "the lock", r.lockable)
	}
}

func TestCommandKeepsDirectoryLimitsAndName(t *testing.T) {
	r := newRun(t, "", "bash", "-c", `pwd; ulimit -n; umask; ps -o nice= -p $$; echo $0`)
	dir := t.TempDir()
	r.Dir = dir
	r.Args = append([]string{"sh", "-c", `umask 027; ulimit -Sn 100; exec nice -n 3 "$@"`, "sh", r.Path}, r.Args[1:]...)
	r.Path = lookPath(t, "sh")
	r.launch()
	r.finish()
	ours, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		t.Fatal(err)
	}
	nice := strconv.Itoa(min(20-ours+3, 19)) // the system call returns 20 less the niceness
	if got, want := strings.Fields(r.stdout.String()), []string{dir, "100", "0027", nice, "bash"}; strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("output %q, want %q", got, want)
	}
}

func TestCommandReadsOurInput(t *testing.T) {
	r := newRun(t, "", "cat")
	r.Stdin = strings.NewReader("hello")
	r.launch()
	r.finish()
	if r.stdout.String() != "hello" {
		t.Errorf("output %q", r.stdout)
	}
}

func TestDieEndsTheProcessByTheSignal(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGINT, unix.SIGQUIT} {
		r := newRun(t, "", "true")
		r.Args = []string{r.Path, "die", unix.SignalName(sig)}
		_ = r.Run()
		status := r.ProcessState.Sys().(syscall.WaitStatus)
		if !status.Signaled() || status.Signal() != sig || status.CoreDump() {
			t.Errorf("%v: %v", sig, r.ProcessState)
		}
	}
}

func TestOrders(t *testing.T) {
	for _, o := range []orders{{}, {group: true, pid: 12, start: 99, since: 98, kill: 1 << 60, mark: "a-b c\nd"}} {
		if got, err := parseOrders(strings.TrimSuffix(string(o.line()), "\n")); err != nil || got != o {
			t.Errorf("parseOrders = %+v, %v; want %+v", got, err, o)
		}
	}
}
