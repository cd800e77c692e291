package prefault

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

// madvPopulateRead is MADV_POPULATE_READ (madvise(2), since Linux 5.14). Older kernels
// refuse it, and all is as it would be without.
const madvPopulateRead = 22

func init() {
	if begin, end, ok := text(); ok {
		_, _, _ = syscall.RawSyscall(syscall.SYS_MADVISE, begin, end-begin, madvPopulateRead)
	}
}

// text finds the program's code, which is the first executable mapping.
func text() (begin, end uintptr, ok bool) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, 0, false
	}
	defer f.Close()
	head := make([]byte, 512)
	n, _ := f.Read(head)
	return parse(head[:n])
}

// parse reads lines such as
//
//	00400000-00d39000 r-xp 00000000 fe:00 4242 /usr/bin/dlock
func parse(maps []byte) (begin, end uintptr, ok bool) {
	for line := range bytes.Lines(maps) {
		addresses, rest, _ := bytes.Cut(line, []byte(" "))
		from, to, _ := bytes.Cut(addresses, []byte("-"))
		if len(rest) < 4 || rest[2] != 'x' {
			continue
		}
		b, err1 := strconv.ParseUint(string(from), 16, 64)
		e, err2 := strconv.ParseUint(string(to), 16, 64)
		return uintptr(b), uintptr(e), err1 == nil && err2 == nil && b < e
	}
	return 0, 0, false
}
