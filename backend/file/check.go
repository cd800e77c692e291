package file

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
)

var _ backend.Checker = (*Backend)(nil)

// Check looks at the directory and its file system.
func (b *Backend) Check(context.Context, time.Duration) []backend.Check {
	d, err := openDir(b.opts.Dir, 0, true)
	if err != nil {
		level := backend.Fail
		if errors.Is(err, fs.ErrNotExist) && b.opts.Implicit {
			level = backend.Warn
		}
		return []backend.Check{backend.Found("directory", level, "make it: mkdir -m 700 "+b.opts.Dir, "%v", err)}
	}
	defer d.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(d.fd(), &st); err != nil {
		return []backend.Check{backend.Found("file system", backend.Fail, "see the kernel's log", "%v", err)}
	}
	return []backend.Check{b.checkKind(d), checkPermissions(d), checkSpace(&st)}
}

// checkKind looks at whether kernel locks reach everybody who uses the directory.
func (b *Backend) checkKind(d *dir) backend.Check {
	return judgeKind(refuseNetwork(d.fd(), b.opts.Dir), b.opts.Network)
}

func judgeKind(err error, accepted bool) backend.Check {
	const check = "file system"
	switch {
	case err == nil:
		return backend.Good(check, "local, where kernel locks reach everybody")
	case accepted:
		return backend.Found(check, backend.Warn, "use a lock service for several hosts", "a network file system, accepted by ?network=ok: its locks may not reach other hosts")
	}
	return backend.Found(check, backend.Fail, "use a local directory, or a lock service for several hosts", "%v", err)
}

// checkPermissions looks at who else may take the locks, or break them.
func checkPermissions(d *dir) backend.Check {
	const check = "permissions"
	info, err := d.Stat()
	if err != nil {
		return backend.Found(check, backend.Fail, "see the kernel's log", "%v", err)
	}
	switch mode := info.Mode(); {
	case mode&os.ModeSticky != 0:
		return backend.Found(check, backend.Warn, "use a directory of the group's own, with mode 2770",
			"%s is sticky: a lock belongs to the user who made it first, and others are refused", d.Name())
	case mode.Perm()&0o002 != 0:
		return backend.Found(check, backend.Warn, "chmod o-w "+d.Name(), "everybody may take these locks, and break them")
	case mode.Perm()&0o020 != 0:
		return backend.Good(check, "the members of group %d share these locks", d.gid)
	}
	return backend.Good(check, "only user %d may take these locks", d.owner)
}

// What a lock needs: a few small files.
const (
	littleSpace = 1 << 20 // bytes
	fewFiles    = 100
)

func checkSpace(st *unix.Statfs_t) backend.Check {
	const check, hint = "disk space", "make room: no lock is taken on a full disk"
	free, files := max(0, int64(st.Bavail))*int64(st.Bsize), int64(st.Ffree) // some systems count below zero
	if st.Files == 0 {                                                       // this file system does not count them
		files = fewFiles
	}
	switch {
	case free <= 0 || files <= 0:
		return backend.Found(check, backend.Fail, hint, "full")
	case free < littleSpace || files < fewFiles:
		return backend.Found(check, backend.Warn, hint, "%d KiB and %d files left", free>>10, files)
	}
	return backend.Good(check, "%d MiB left", free>>20)
}
