package file

import (
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
)

// networkFS lists the file systems on which another host may not see our flock(2),
// or may lose it, by the magic number that statfs(2) gives.
var networkFS = map[uint32]string{
	0x6969:     "nfs",
	0x517B:     "smb",
	0xFF534D42: "cifs",
	0xFE534D42: "smb2",
	0x01021997: "9p",
	0x65735546: "fuse",
	0x5346414F: "afs",
	0x6B414653: "afs",
	0x00C36400: "ceph",
	0x0BD00BD0: "lustre",
	0x47504653: "gpfs",
	0x01161970: "gfs2",
	0x7461636F: "ocfs2",
	0x73757245: "coda",
	0x786F4256: "vboxsf",
	0x20030528: "pvfs2",
}

func refuseNetwork(fd int, path string) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return failed("lock directory", &fs.PathError{Op: "statfs", Path: path, Err: err})
	}
	return refuseMagic(uint32(st.Type), path)
}

// refuseMagic refuses a network file system by its number.
func refuseMagic(magic uint32, path string) error {
	name, found := networkFS[magic]
	if !found {
		return nil
	}
	return &opError{"lock directory", backend.ErrUnavailable, fmt.Errorf(
		"%s is on a network file system (%s), where a kernel lock may not reach other hosts; use a local directory, or accept that with file://%s?network=ok", path, name, path)}
}
