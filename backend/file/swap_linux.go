package file

import (
	"errors"

	"golang.org/x/sys/unix"
)

// swap gives the file spare the name of the record, and the record, if there is one
// and the file system can do that, the name of the spare.
func swap(dir int, spare, name string) error {
	err := unix.Renameat2(dir, spare, dir, name, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		err = unix.Renameat(dir, spare, dir, name)
	}
	return err
}
