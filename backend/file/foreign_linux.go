package file

import (
	"os"
	"strconv"
	"strings"
)

// readKernelLocks reads /proc/locks (proc_locks(5)), which shows the locks of the
// processes that this one can see.
func readKernelLocks() kernelLocks {
	data, err := os.ReadFile("/proc/locks")
	if err != nil {
		return nil
	}
	return parseKernelLocks(string(data))
}

// parseKernelLocks reads lines such as
//
//	1: FLOCK  ADVISORY  WRITE 4242 08:01:131099 0 EOF
//	1: -> FLOCK  ADVISORY  WRITE 4243 08:01:131099 0 EOF
func parseKernelLocks(text string) kernelLocks {
	locks := kernelLocks{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		waiting := len(fields) > 1 && fields[1] == "->"
		if waiting {
			fields = append(fields[:1], fields[2:]...)
		}
		if len(fields) < 6 || fields[1] != "FLOCK" {
			continue
		}
		pid, err := strconv.Atoi(fields[4])
		file, ok := parseInode(fields[5])
		if err != nil || !ok {
			continue
		}
		locks[file] = append(locks[file], kernelLock{pid: pid, shared: fields[3] == "READ", waiting: waiting})
	}
	return locks
}

func parseInode(s string) (inode, bool) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return inode{}, false
	}
	major, err1 := strconv.ParseUint(parts[0], 16, 32)
	minor, err2 := strconv.ParseUint(parts[1], 16, 32)
	number, err3 := strconv.ParseUint(parts[2], 10, 64)
	return inode{uint32(major), uint32(minor), number}, err1 == nil && err2 == nil && err3 == nil
}
