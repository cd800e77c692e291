package file

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/dlock/dlock/backend"
)

// Inspect reads records and the kernel's list of locks, and locks nothing that
// anybody else might want. Without names it shows what is held, waited for or
// unreadable in the directory.
func (b *Backend) Inspect(ctx context.Context, names ...string) ([]backend.Status, error) {
	all := len(names) == 0
	if all {
		var err error
		if names, err = b.names(); err != nil {
			return nil, err
		}
	}
	kernel := readKernelLocks()
	var list []backend.Status
	for _, name := range names {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		s, err := b.inspect(ctx, name, kernel)
		if err != nil && !all {
			return nil, err
		}
		s.Err = err
		if !all || err != nil || len(s.Holders)+len(s.Waiters)+len(s.Problems) > 0 {
			list = append(list, s)
		}
	}
	return list, nil
}

func (b *Backend) inspect(ctx context.Context, name string, kernel kernelLocks) (backend.Status, error) {
	free := backend.Status{Name: name}
	l, err := b.open(name)
	if errors.Is(err, fs.ErrNotExist) {
		l, err = b.openForeign(name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return free, nil
	}
	if err != nil {
		return free, err
	}
	defer l.close()
	if l.state == nil {
		l.addForeign(&free, kernel)
		return free, nil
	}
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status := free
	err = l.view(brief, func(s *state) error {
		status = s.rec.Status(name, s.now)
		waiters, _ := l.readWaiters(s.rec)
		status.Waiters = statuses(waiters, s.now)
		if s.bad != nil {
			status.Problems = append(status.Problems, s.bad.Error())
		}
		return nil
	})
	l.addForeign(&status, kernel)
	return status, err
}

// openForeign opens a lock of which only the public file exists.
func (b *Backend) openForeign(name string) (*lock, error) {
	d, err := openDir(b.opts.Dir, 0, b.opts.Network)
	if err != nil {
		return nil, err
	}
	return &lock{name: name, namespace: b.opts.Namespace, base: baseName(b.opts.Namespace, name), dir: d}, nil
}

// names lists the locks of the directory, sorted.
func (b *Backend) names() ([]string, error) {
	d, err := openDir(b.opts.Dir, 0, b.opts.Network)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.Readdirnames(-1)
	if err != nil {
		return nil, failed("lock directory", err)
	}
	var names []string
	for _, entry := range entries {
		if name, ok := b.entryName(d, entry); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// entryName tells which lock a directory entry belongs to.
func (b *Backend) entryName(d *dir, entry string) (string, bool) {
	base, ok := strings.CutSuffix(entry, publicSuffix)
	if !ok {
		if base, ok = strings.CutSuffix(entry, stateSuffix); !ok {
			return "", false
		}
	}
	if name, ok := lockName(b.opts.Namespace, base); ok {
		return name, true
	}
	return b.hashedName(d, base)
}

// hashedName asks the record for a name that was too long for a file name.
func (b *Backend) hashedName(d *dir, base string) (string, bool) {
	sub, err := d.openSub(base+stateSuffix, false)
	if err != nil {
		return "", false
	}
	defer sub.Close()
	rec, err := (&lock{state: sub}).read()
	if err != nil || backend.CheckName(rec.Name) != nil || baseName(b.opts.Namespace, rec.Name) != base {
		return "", false
	}
	return rec.Name, true
}
