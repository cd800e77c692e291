//go:build !linux

package file

import "golang.org/x/sys/unix"

// swap gives the file spare the name of the record.
func swap(dir int, spare, name string) error { return unix.Renameat(dir, spare, dir, name) }
