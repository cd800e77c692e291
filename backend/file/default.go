package file

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/dlock/dlock/backend"
)

const (
	systemDir = "/var/lib/dlock"     // root's locks
	userDir   = ".local/state/dlock" // everybody else's, below the home directory
)

// Default places the locks of a user who named no lock service.
func Default() (Options, error) {
	if os.Geteuid() == 0 {
		return Options{Dir: systemDir, Perm: 0o755, Implicit: true}, nil // users may see which names root uses
	}
	home, err := homeDir(os.Geteuid())
	if err != nil {
		return Options{}, &opError{"default lock directory", backend.ErrUnavailable, err}
	}
	return Options{Dir: filepath.Join(home, userDir), Implicit: true}, nil
}

// homeDir asks the password database, and not the environment: a job must find the
// same directory from cron, from a shell and through sudo.
func homeDir(uid int) (string, error) {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil && filepath.IsAbs(u.HomeDir) {
		return u.HomeDir, nil
	}
	// A static binary reads only /etc/passwd; directory services are asked like this.
	out, err := exec.Command("getent", "passwd", id).Output()
	if fields := bytes.Split(bytes.TrimSpace(out), []byte(":")); err == nil && len(fields) >= 6 && filepath.IsAbs(string(fields[5])) {
		return string(fields[5]), nil
	}
	return "", fmt.Errorf("user id %d has no home directory in the password database; name a directory with --backend file:///dir", uid)
}

// Elsewhere returns the lock file that the same name has in the other default place
// (root's, or that of the user who called sudo), or "" where there is none: the two
// do not exclude each other, which may surprise.
func (b *Backend) Elsewhere(name string) string {
	if !b.opts.Implicit {
		return ""
	}
	other := systemDir
	if os.Geteuid() == 0 {
		uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
		if err != nil || uid == 0 {
			return ""
		}
		home, err := homeDir(uid)
		if err != nil {
			return ""
		}
		other = filepath.Join(home, userDir)
	}
	path := filepath.Join(other, baseName(b.opts.Namespace, name)+publicSuffix)
	if _, err := os.Lstat(path); err != nil {
		return ""
	}
	return path
}
