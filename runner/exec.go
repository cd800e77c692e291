package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// shell runs scripts that do not name their interpreter.
const shell = "/bin/sh"

// startCommand executes the command, as execvp does. The descriptors are those
// that this process got from its parent; the environment, directory and limits are
// untouched.
func startCommand(spec Spec, files inherited, sys *syscall.SysProcAttr) (pid int, err error) {
	files.passOn()
	defer files.holdBack()
	attr := &syscall.ProcAttr{Env: spec.Env, Files: []uintptr{0, 1, 2}, Sys: sys}
	pid, err = syscall.ForkExec(spec.Path, spec.Args, attr)
	if !errors.Is(err, unix.ENOEXEC) {
		return pid, explain(spec, err)
	}
	if head := firstLine(spec.Path); bytes.IndexByte(head, 0) >= 0 {
		return 0, &StartError{spec.Args[0], codeCannotExecute, errors.New("is neither a script nor a program for this machine")}
	}
	args := append([]string{shell, spec.Path}, spec.Args[1:]...)
	pid, err = syscall.ForkExec(shell, args, attr)
	return pid, explain(spec, err)
}

// explain puts into words why a command could not be executed.
func explain(spec Spec, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, unix.ENOENT) && executable(spec.Path) == nil {
		// The file is there, so what is missing is what must run it.
		reason := errors.New("the loader that it needs is missing")
		if line, ok := bytes.CutPrefix(firstLine(spec.Path), []byte("#!")); ok {
			interpreter, _, _ := strings.Cut(strings.TrimLeft(string(line), " \t"), " ")
			reason = fmt.Errorf("its interpreter %q is missing", interpreter)
		}
		return &StartError{spec.Args[0], codeCannotExecute, reason}
	}
	return notStartable(spec.Args[0], err)
}

// firstLine returns the beginning of a file up to its first line break. Shells
// take a file with a NUL there for a binary one.
func firstLine(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	head := make([]byte, 256)
	n, _ := io.ReadFull(f, head)
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	return line
}
