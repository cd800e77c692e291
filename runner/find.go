package runner

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Exit codes that shells use for commands that could not be started.
const (
	codeCannotExecute = 126
	codeNotFound      = 127
)

// StartError says why a command cannot be started.
type StartError struct {
	Name string
	Code int // the exit code for it: 126 cannot be executed, 127 not found
	Err  error
}

func (e *StartError) Error() string { return fmt.Sprintf("%s: %v", e.Name, e.Err) }

// Unwrap returns the reason.
func (e *StartError) Unwrap() error { return e.Err }

// Find looks a command up as execvp does: in PATH, or as it stands if it contains
// a slash. The error is a *StartError.
func Find(name string) (path string, err error) {
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil {
			return "", notStartable(name, err)
		}
		return name, nil
	}
	reason := error(unix.ENOENT)
	if name != "" { // a directory of PATH would be found
		for _, dir := range searchPath() {
			path := dir + "/" + name
			err := executable(path)
			if err == nil {
				return path, nil
			}
			if !missing(err) {
				reason = err // go on: a later directory may have a better one
			}
		}
	}
	return "", notStartable(name, reason)
}

// searchPath returns the directories of PATH; an empty one is the working directory.
func searchPath() []string {
	path, set := os.LookupEnv("PATH")
	if !set {
		path = "/bin:/usr/bin"
	}
	dirs := strings.Split(path, ":")
	for i, dir := range dirs {
		if dir == "" {
			dirs[i] = "."
		}
	}
	return dirs
}

// executable tells what hinders us from executing a file.
func executable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return unix.EISDIR
	case !info.Mode().IsRegular():
		return unix.EACCES
	}
	if err := unix.Faccessat(unix.AT_FDCWD, path, unix.X_OK, unix.AT_EACCESS); err != nil {
		return err
	}
	return nil
}

func missing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
}

// notStartable puts the reason into words.
func notStartable(name string, err error) *StartError {
	switch {
	case missing(err):
		return &StartError{name, codeNotFound, errors.New("command not found")}
	case errors.Is(err, unix.EISDIR):
		return &StartError{name, codeCannotExecute, errors.New("is a directory")}
	}
	var number unix.Errno
	if errors.As(err, &number) {
		err = number // without the path, which the name says already
	}
	return &StartError{name, codeCannotExecute, fmt.Errorf("cannot be executed: %w", err)}
}
