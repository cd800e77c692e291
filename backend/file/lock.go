package file

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
)

// lock is one lock name, open for use: its directory and its state directory.
type lock struct {
	name, namespace, base string
	dir                   *dir // holds the public lock file
	state                 *dir // nil where only another program has used the name
}

// open opens the files of a lock that exists; fs.ErrNotExist says that none does.
func (b *Backend) open(name string) (*lock, error) { return b.openLock(name, false) }

// create opens the files of a lock and makes what is missing.
func (b *Backend) create(name string) (*lock, error) { return b.openLock(name, true) }

func (b *Backend) openLock(name string, create bool) (*lock, error) {
	if err := backend.CheckName(name); err != nil {
		return nil, err
	}
	var perm os.FileMode
	if create {
		perm = cmp.Or(b.opts.Perm, 0o700)
	}
	d, err := openDir(b.opts.Dir, perm, b.opts.Network)
	if err != nil {
		return nil, err
	}
	l := &lock{name: name, namespace: b.opts.Namespace, base: baseName(b.opts.Namespace, name), dir: d}
	if l.state, err = d.openSub(l.base+stateSuffix, create); err != nil {
		d.Close()
		return nil, err
	}
	return l, nil
}

func (l *lock) close() {
	l.dir.Close()
	if l.state != nil {
		l.state.Close()
	}
}

// publicFile names the lock file that flock(1) shares.
func (l *lock) publicFile() (*dir, string) { return l.dir, l.base + publicSuffix }

// turnstileFile names the file that the head of the line has locked.
func (l *lock) turnstileFile() (*dir, string) { return l.state, "turnstile" }

// liveFile names the file that one contender has locked for as long as it lives.
func (l *lock) liveFile(token string) (*dir, string) { return l.state, livePrefix + token }

const livePrefix = "live-"

// errWouldBlock means that somebody else has the kernel lock.
var errWouldBlock = errors.New("would block")

// tryFlock locks a file of d, which is made if missing, or fails with
// errWouldBlock. How is unix.LOCK_EX or unix.LOCK_SH.
func tryFlock(d *dir, name string, how int) (*os.File, error) {
	return flockFile(d, name, func(f *os.File) error { return flock(f, how|unix.LOCK_NB) })
}

// waitFlock is tryFlock that waits, in the kernel, until ctx ends.
func waitFlock(ctx context.Context, d *dir, name string, how int) (*os.File, error) {
	return flockFile(d, name, func(f *os.File) error { return flockContext(ctx, f, how) })
}

// flockFile opens and locks a file, again and again until the file that it has
// locked is the one that the name stands for: a lock on a file that was removed or
// replaced meanwhile excludes nobody.
func flockFile(d *dir, name string, lock func(*os.File) error) (*os.File, error) {
	for {
		f, err := d.openFile(name, unix.O_RDONLY|unix.O_CREAT)
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			f.Close()
			return nil, err
		}
		if inPlace(d, name, f) {
			return f, nil
		}
		f.Close()
	}
}

// inPlace tells whether name in d still is the open file f.
func inPlace(d *dir, name string, f *os.File) bool {
	var open, named unix.Stat_t
	return unix.Fstat(int(f.Fd()), &open) == nil &&
		unix.Fstatat(d.fd(), name, &named, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		open.Dev == named.Dev && open.Ino == named.Ino
}

// checkPlace fails if the lock's files are not where their names say any more: then
// others find other files there, and take the lock beside us.
func (l *lock) checkPlace() error {
	var st unix.Stat_t
	err := unix.Stat(l.dir.Name(), &st)
	if err == nil && !l.dir.is(st) {
		err = fs.ErrNotExist
	}
	if err == nil {
		err = unix.Fstatat(l.dir.fd(), l.base+stateSuffix, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil && !l.state.is(st) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return failed("lock directory", fmt.Errorf("%s was removed or replaced: %w", l.state.Name(), err))
	}
	return nil
}

// is tells whether st is of this directory.
func (d *dir) is(st unix.Stat_t) bool {
	var open unix.Stat_t
	return unix.Fstat(d.fd(), &open) == nil && open.Dev == st.Dev && open.Ino == st.Ino
}

// flock calls flock(2), with errWouldBlock for EWOULDBLOCK.
func flock(f *os.File, how int) error {
	for {
		switch err := unix.Flock(int(f.Fd()), how); {
		case errors.Is(err, unix.EWOULDBLOCK):
			return errWouldBlock
		case err == nil, !errors.Is(err, unix.EINTR):
			return err
		}
	}
}

// unlock gives up a kernel lock at once, also for those that inherited it.
func unlock(f *os.File) {
	_ = unix.Flock(int(f.Fd()), unix.LOCK_UN)
	f.Close()
}
