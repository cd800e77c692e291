//go:build !linux

package file

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// flockContext waits for the kernel lock on f until ctx ends, and then returns the
// context's cause. On this system a blocked flock(2) cannot be called off, so the
// lock is tried again and again, at most every 100 ms.
func flockContext(ctx context.Context, f *os.File, how int) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		if err := flock(f, how|unix.LOCK_NB); !errors.Is(err, errWouldBlock) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
