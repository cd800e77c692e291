package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
)

var _ backend.Forgetter = (*Backend)(nil)

// Forget removes the files of a lock that nobody holds or waits for. Who is about to take
// it is told that they are gone.
func (b *Backend) Forget(ctx context.Context, name string) error {
	l, err := b.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer l.close()
	return l.locked(ctx, unix.LOCK_EX, func(s *state, _ []string) error {
		err := error(errWouldBlock)
		if len(s.rec.Holders)+len(s.rec.Queue) == 0 {
			err = l.alone(l.removeFiles)
		}
		if errors.Is(err, errWouldBlock) {
			err = fmt.Errorf("%w: somebody holds or waits for it", backend.ErrInvalid)
		}
		return err
	})
}

// alone runs do while nobody holds the kernel lock or waits for it, or fails with
// errWouldBlock.
func (l *lock) alone(do func() error) error {
	for _, file := range []func() (*dir, string){l.turnstileFile, l.publicFile} {
		d, name := file()
		f, err := tryFlock(d, name, unix.LOCK_EX)
		if err != nil {
			return err
		}
		defer unlock(f)
	}
	return do()
}

func (l *lock) removeFiles() error {
	entries, err := l.state.Readdirnames(-1)
	if err != nil {
		return failed("lock directory", err)
	}
	for _, entry := range entries {
		if err := unix.Unlinkat(l.state.fd(), entry, 0); err != nil {
			return failed("lock file", &fs.PathError{Op: "remove", Path: l.state.Name() + "/" + entry, Err: err})
		}
	}
	d, name := l.publicFile()
	err = unix.Unlinkat(l.dir.fd(), l.base+stateSuffix, unix.AT_REMOVEDIR)
	return errors.Join(err, unix.Unlinkat(d.fd(), name, 0))
}
