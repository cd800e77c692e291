package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
)

// dir is an open directory. Files are reached through its descriptor, so that
// nobody can put another directory into its path meanwhile.
type dir struct {
	*os.File
	perm   uint32 // of directories made in it
	gid    int    // group of what is made in it
	owner  uint32
	sticky bool // others may add files, and not remove ours
}

// openDir opens the directory of locks, and makes it with the permissions create
// unless that is zero.
func openDir(path string, create os.FileMode, network bool) (*dir, error) {
	if create != 0 {
		if err := os.MkdirAll(path, create); err != nil {
			return nil, failed("lock directory", err)
		}
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, failed("lock directory", &fs.PathError{Op: "open", Path: path, Err: err})
	}
	d, err := newDir(fd, path)
	if err != nil {
		return nil, err
	}
	if !network {
		if err := refuseNetwork(fd, path); err != nil {
			d.Close()
			return nil, err
		}
	}
	return d, nil
}

// newDir takes over fd, and closes it when it fails.
func newDir(fd int, path string) (*dir, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, failed("lock directory", &fs.PathError{Op: "stat", Path: path, Err: err})
	}
	mode := uint32(st.Mode)
	d := &dir{
		File: os.NewFile(uintptr(fd), path), perm: 0o700, gid: int(st.Gid), owner: st.Uid,
		sticky: mode&unix.S_ISVTX != 0,
	}
	// Who may add files may also take locks, so gets the files' permissions. In a
	// sticky directory nobody else can replace our files: they stay private.
	if !d.sticky {
		d.perm |= mode & (unix.S_IWGRP | unix.S_ISGID | unix.S_IWOTH)
		d.perm |= (d.perm & 0o022) << 1 // who may write may read
		d.perm |= (d.perm & 0o022) >> 1 // and enter
	}
	return d, nil
}

func (d *dir) fd() int { return int(d.Fd()) }

// shared tells whether other users may add files here.
func (d *dir) shared() bool { return d.sticky || d.perm&0o022 != 0 }

// openSub opens the directory name within d, and makes it when create is set.
func (d *dir) openSub(name string, create bool) (*dir, error) {
	path := d.Name() + "/" + name
	flags := unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := d.retryDenied(func() (int, error) { return unix.Openat(d.fd(), name, flags, 0) })
	if errors.Is(err, unix.ENOENT) && create {
		err = unix.Mkdirat(d.fd(), name, d.perm)
		if err == nil || errors.Is(err, unix.EEXIST) {
			fd, err = d.retryDenied(func() (int, error) { return unix.Openat(d.fd(), name, flags, 0) })
		}
	}
	if err != nil {
		return nil, failed("state of the lock", d.explain(name, err))
	}
	if create {
		d.adopt(fd, d.perm)
	}
	if err := d.checkOwner(fd, path); err != nil {
		unix.Close(fd)
		return nil, err
	}
	sub, err := newDir(fd, path)
	if err != nil {
		return nil, err
	}
	sub.sticky, sub.owner = d.sticky, d.owner
	return sub, nil
}

// openFile opens a regular file in d, and makes it if flags, which are those of
// open(2), have O_CREAT. It follows no symbolic link and refuses what somebody else
// may have put in the file's place.
func (d *dir) openFile(name string, flags int) (*os.File, error) {
	path := d.Name() + "/" + name
	create := flags&unix.O_CREAT != 0
	flags = flags&^unix.O_CREAT | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_NONBLOCK // a fifo must not block us
	for {
		fd, err := d.retryDenied(func() (int, error) { return unix.Openat(d.fd(), name, flags, 0) })
		if errors.Is(err, unix.ENOENT) && create {
			fd, err = unix.Openat(d.fd(), name, flags|unix.O_CREAT|unix.O_EXCL, d.perm&0o666)
			if errors.Is(err, unix.EEXIST) {
				continue
			}
		}
		if err != nil {
			return nil, failed("lock file", d.explain(name, err))
		}
		if create {
			d.adopt(fd, d.perm&0o666)
		}
		if err := d.checkFile(fd, path); err != nil {
			unix.Close(fd)
			return nil, err
		}
		_ = unix.SetNonblock(fd, false) // a regular file never blocks; keeps it off Go's poller
		return os.NewFile(uintptr(fd), path), nil
	}
}

// adopt gives a file of ours in a shared directory the permissions that the directory
// asks for, whatever the umask. It may have been made just now, or by one of us who was
// killed before he came to this. Where the group cannot be set, others are refused.
func (d *dir) adopt(fd int, perm uint32) {
	var st unix.Stat_t
	if d.perm&0o022 == 0 || unix.Fstat(fd, &st) != nil || st.Uid != uint32(os.Geteuid()) || st.Nlink > 1 && st.Mode&unix.S_IFMT == unix.S_IFREG {
		return
	}
	if d.perm&0o020 != 0 && int(st.Gid) != d.gid {
		_ = unix.Fchown(fd, -1, d.gid)
	}
	if uint32(st.Mode)&0o7777&perm != perm {
		_ = unix.Fchmod(fd, perm)
	}
}

// retryDenied repeats open for a moment while it is refused in a shared directory:
// another user may have made the file just now, and not yet set its permissions.
func (d *dir) retryDenied(open func() (int, error)) (int, error) {
	for range 20 {
		fd, err := open()
		if !errors.Is(err, unix.EACCES) || d.perm&0o022 == 0 {
			return fd, err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return open()
}

func (d *dir) checkFile(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return failed("lock file", &fs.PathError{Op: "stat", Path: path, Err: err})
	}
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return failed("lock file", describe(path, unix.EISDIR))
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return failed("lock file", fmt.Errorf("%s is not a regular file; remove it", path))
	case st.Nlink > 1 && d.shared():
		return failed("lock file", fmt.Errorf("%s has a second name (hard link) and may be a trap; remove it", path))
	}
	return d.checkOwner(fd, path)
}

// checkOwner refuses, in a sticky directory, what a third user put there.
func (d *dir) checkOwner(fd int, path string) error {
	if !d.sticky {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return failed("lock file", &fs.PathError{Op: "stat", Path: path, Err: err})
	}
	if st.Uid == uint32(os.Geteuid()) || st.Uid == d.owner || st.Uid == 0 {
		return nil
	}
	return foreign(path, st.Uid)
}

// foreign refuses a file of another user in a sticky directory.
func foreign(path string, uid uint32) error {
	return &opError{"lock file", backend.ErrDenied, fmt.Errorf(
		"%s belongs to user id %d; to share locks between users, use a group-writable directory without the sticky bit (mode 2770)", path, uid)}
}

// explain says why the file name cannot be opened.
func (d *dir) explain(name string, err error) error {
	path := d.Name() + "/" + name
	var st unix.Stat_t
	if d.sticky && errors.Is(err, unix.EACCES) && unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
		return foreign(path, st.Uid)
	}
	return describe(path, err)
}

// describe names what stands in a file's place.
func describe(path string, err error) error {
	switch {
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("%s is a symbolic link, which is not followed; remove it", path)
	case errors.Is(err, unix.EISDIR):
		return fmt.Errorf("%s is a directory; remove it", path)
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%s is not a directory; remove it", path)
	}
	return &fs.PathError{Op: "open", Path: path, Err: err}
}

// reopen opens the directory once more, to be read from its beginning.
func (d *dir) reopen() (*os.File, error) {
	fd, err := unix.Openat(d.fd(), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), d.Name()), nil
}
