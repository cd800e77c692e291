//go:build !linux

package runner

import (
	"errors"

	"github.com/dlock/dlock/internal/proc"
)

// This system cannot list processes: a run knows its command and the group.
func (l *life) descendants(func(proc.Process) bool) ([]proc.Process, error) {
	return nil, errors.ErrUnsupported
}

func ownChildren() map[int]bool { return nil }

func (l *life) hasChildren() bool { return false }

func isNested(proc.Process) bool { return false }

func (w *watch) strays() []proc.Process { return w.known() }
