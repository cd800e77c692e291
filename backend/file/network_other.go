//go:build !linux

package file

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
)

func refuseNetwork(fd int, path string) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return failed("lock directory", &fs.PathError{Op: "statfs", Path: path, Err: err})
	}
	if st.Flags&unix.MNT_LOCAL != 0 {
		return nil
	}
	return &opError{"lock directory", backend.ErrUnavailable, fmt.Errorf(
		"%s is on a network file system, where a kernel lock may not reach other hosts; use a local directory, or accept that with file://%s?network=ok", path, path)}
}
