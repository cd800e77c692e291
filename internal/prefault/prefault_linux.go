package prefault

import (
	"os"
	"slices"
	"syscall"
	"unsafe"
)

// madvPopulateWrite is MADV_POPULATE_WRITE (madvise(2), since Linux 5.14). Older kernels
// refuse it, and all is as it would be without.
const madvPopulateWrite = 23

// size is about what a short run takes of the heap.
const size = 512 << 10

// block has a span of its own, the first one that is free; what follows it is free too,
// and comes next.
var block []byte

func init() {
	if len(os.Args) > 1 { // a guard has no arguments, and needs little
		growStack()
	}
	if slices.Contains(os.Args, "run") { // the rest needs less than that costs
		_, _ = populate()
	}
}

// growStack gives the main goroutine at once the stack that it needs. Otherwise that grows
// in steps, each of which looks up all functions on it in tables that are not mapped yet.
//
//go:noinline
func growStack() byte {
	var frame [24 << 10]byte
	return frame[len(os.Args)%len(frame)]
}

// populate maps the beginning of the free heap, or as much of it as there is so far.
func populate() (begin uintptr, err error) {
	block = make([]byte, 8<<10)
	begin = uintptr(unsafe.Pointer(unsafe.SliceData(block)))
	block = nil
	if _, _, errno := syscall.RawSyscall(syscall.SYS_MADVISE, begin, size, madvPopulateWrite); errno != 0 {
		return begin, errno
	}
	return begin, nil
}
