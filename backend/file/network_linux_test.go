package file

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
)

func TestNetworkFileSystemsAreRefused(t *testing.T) {
	for magic, name := range map[uint32]string{
		unix.NFS_SUPER_MAGIC: "nfs", unix.SMB_SUPER_MAGIC: "smb", unix.CIFS_SUPER_MAGIC: "cifs", unix.SMB2_SUPER_MAGIC: "smb2",
		unix.V9FS_MAGIC: "9p", unix.FUSE_SUPER_MAGIC: "fuse", unix.AFS_SUPER_MAGIC: "afs", unix.AFS_FS_MAGIC: "afs",
		unix.CEPH_SUPER_MAGIC: "ceph", unix.OCFS2_SUPER_MAGIC: "ocfs2", unix.CODA_SUPER_MAGIC: "coda",
	} {
		err := refuseMagic(magic, "/dir")
		if !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range []string{"(" + name + ")", "file:///dir?network=ok"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, which lacks %q", name, err, want)
			}
		}
	}
	for _, magic := range []uint32{
		unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, 0x2FC12FC1, // zfs
	} {
		if err := refuseMagic(magic, "/dir"); err != nil {
			t.Errorf("%#x: %v", magic, err)
		}
	}
}
