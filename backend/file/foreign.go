package file

import (
	"os/user"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/proc"
)

// kernelLock is one flock(2) lock, or the wait for one, as the kernel lists it.
type kernelLock struct {
	pid     int
	shared  bool
	waiting bool
}

// inode tells one file from all others of the host.
type inode struct {
	major, minor uint32
	number       uint64
}

// kernelLocks are the flock(2) locks of this host, by file.
type kernelLocks map[inode][]kernelLock

// of returns the locks on the public file of l.
func (k kernelLocks) of(l *lock) []kernelLock {
	d, name := l.publicFile()
	var st unix.Stat_t
	if unix.Fstatat(d.fd(), name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil
	}
	dev := uint64(st.Dev)
	return k[inode{unix.Major(dev), unix.Minor(dev), uint64(st.Ino)}]
}

// addForeign adds those that hold or wait for the public file and are not ours.
func (l *lock) addForeign(s *backend.Status, kernel kernelLocks) {
	ours := map[int]bool{}
	for _, h := range s.Holders {
		ours[h.Owner.PID] = true
	}
	for _, w := range s.Waiters {
		ours[w.Owner.PID] = true
	}
	for _, k := range kernel.of(l) {
		switch {
		case ours[k.pid]:
		case k.waiting:
			s.Waiters = append(s.Waiters, backend.Waiter{Owner: foreignOwner(k.pid), Mode: k.mode(), Waiting: -1})
		default:
			s.Holders = append(s.Holders, backend.Holder{Owner: foreignOwner(k.pid), Mode: k.mode(), Held: -1})
		}
	}
}

// foreignHolders lists those that hold the public file, when the record names nobody.
func (l *lock) foreignHolders() []backend.Holder {
	var s backend.Status
	l.addForeign(&s, readKernelLocks())
	self := func(h backend.Holder) bool { return h.Owner.PID == unix.Getpid() }
	return slices.DeleteFunc(s.Holders, self)
}

func (k kernelLock) mode() backend.Mode {
	if k.shared {
		return backend.Mode{Kind: backend.Shared}
	}
	return backend.Mode{Kind: backend.Exclusive}
}

// foreignOwner tells what the kernel knows of another program.
func foreignOwner(pid int) backend.Owner {
	o := backend.Owner{Kind: backend.Foreign, PID: pid, Command: proc.Command(pid)}
	var st unix.Stat_t
	if unix.Stat("/proc/"+strconv.Itoa(pid), &st) == nil {
		o.User = strconv.Itoa(int(st.Uid))
		if u, err := user.LookupId(o.User); err == nil {
			o.User = u.Username
		}
	}
	return o
}
