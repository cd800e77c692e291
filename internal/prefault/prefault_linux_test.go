package prefault

import (
	"errors"
	"syscall"
	"testing"
	"unsafe"
)

func TestPopulatedMemoryIsThere(t *testing.T) {
	begin, err := populate()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOMEM) {
		t.Logf("before Linux 5.14, or at the end of what the heap has so far: %v", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	pages := make([]byte, size/syscall.Getpagesize())
	if _, _, errno := syscall.RawSyscall(syscall.SYS_MINCORE, begin, size, uintptr(unsafe.Pointer(&pages[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for i, there := range pages {
		if there&1 == 0 {
			t.Fatalf("page %d of %d is not there", i, len(pages))
		}
	}
}
