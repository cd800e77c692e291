package testscripts

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/internal/proc"
)

// cmdCode runs a command that must exit with the code given first.
func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command [arg…]")
	}
	wantCode(ts, args[0], ts.Exec(args[1], args[2:]...))
}

// wantCode fails unless err tells of the exit code want.
func wantCode(ts *testscript.TestScript, want string, err error) {
	code := 0
	if err != nil {
		exit := (*exec.ExitError)(nil)
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		code = exit.ExitCode()
	}
	if got := strconv.Itoa(code); got != want {
		ts.Fatalf("exit code %s (%v), want %s", got, err, want)
	}
}

// cmdUntil runs a command again and again until it succeeds.
func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: until command [arg…]")
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		cmd := command(ts, args)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("still failing: %v\n%s", err, out)
		}
	}
}

// command is a command in the script's directory, with the environment that the
// script began with: what it sets itself, it has to pass on with env(1).
func command(ts *testscript.TestScript, args []string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = ts.Value(backgroundKey{}).(*background).env
	return cmd
}

// cmdJSON checks that a file (or stdout, stderr) is nothing but JSON values.
func cmdJSON(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: json file")
	}
	values := 0
	for d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0]))); ; values++ {
		var v any
		err := d.Decode(&v)
		if errors.Is(err, io.EOF) {
			break
		}
		ts.Check(err)
	}
	if values == 0 {
		ts.Fatalf("%s is empty", args[0])
	}
}

// cmdFields compares members of the one JSON object in a file: "key=value" wants that
// value, "key" any, "!key" none.
func cmdFields(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: fields file [key=value|key|!key]…")
	}
	var object map[string]json.RawMessage
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &object))
	for _, want := range args[1:] {
		key, value, hasValue := strings.Cut(strings.TrimPrefix(want, "!"), "=")
		got, found := object[key]
		text := strings.Trim(string(got), `"`)
		if found == strings.HasPrefix(want, "!") || hasValue && text != value {
			ts.Fatalf("want %s in %s", want, ts.ReadFile(args[0]))
		}
	}
}

// background is what a script started, by the names that it gave them.
type background struct {
	env       []string
	processes map[string]*process
}

type backgroundKey struct{}

type process struct {
	*exec.Cmd
	ended chan struct{}
	err   error
}

// cmdStart starts a command in the background; its output goes to NAME.out and
// NAME.err. Unlike "exec … &" it can be sent any signal and asked for its code.
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME command [arg…]")
	}
	name := args[0]
	p := &process{Cmd: command(ts, args[1:]), ended: make(chan struct{})}
	stdout, err := os.Create(ts.MkAbs(name + ".out"))
	ts.Check(err)
	defer stdout.Close()
	stderr, err := os.Create(ts.MkAbs(name + ".err"))
	ts.Check(err)
	defer stderr.Close()
	p.Stdout, p.Stderr = stdout, stderr
	ts.Check(p.Start())
	go func() {
		p.err = p.Wait()
		close(p.ended)
	}()
	ts.Defer(func() {
		_ = p.Process.Kill()
		<-p.ended
	})
	ts.Value(backgroundKey{}).(*background).processes[name] = p
}

// started finds what a script started under a name.
func started(ts *testscript.TestScript, name string) *process {
	p := ts.Value(backgroundKey{}).(*background).processes[name]
	if p == nil {
		ts.Fatalf("nothing was started as %q", name)
	}
	return p
}

// cmdSignal sends a signal to a command that was started.
func cmdSignal(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: signal SIGNAL NAME")
	}
	sig := unix.SignalNum("SIG" + args[0])
	if sig == 0 {
		ts.Fatalf("unknown signal %q", args[0])
	}
	ts.Check(started(ts, args[1]).Process.Signal(sig))
}

// cmdEnded waits for the end of a command that was started, and wants its exit code;
// one that a signal ended has the code -1.
func cmdEnded(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: ended NAME CODE")
	}
	p := started(ts, args[0])
	select {
	case <-p.ended:
	case <-time.After(patience):
		ts.Fatalf("%s does not end", args[0])
	}
	if text := ts.ReadFile(args[0] + ".err"); text != "" {
		ts.Logf("[%s.err]\n%s", args[0], text)
	}
	wantCode(ts, args[1], p.err)
}

// cmdGone checks that no process whose number is in a file lives (or, negated, that
// one does). A zombie is dead: its reaping is not ours.
func cmdGone(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: [!] gone file")
	}
	gone := true
	for _, field := range strings.Fields(ts.ReadFile(args[0])) {
		pid, err := strconv.Atoi(field)
		ts.Check(err)
		if p, err := proc.Get(pid); err == nil && !p.Zombie {
			ts.Logf("process %d lives", pid)
			gone = false
		}
	}
	if gone == neg {
		ts.Fatalf("gone: %v", gone)
	}
}
