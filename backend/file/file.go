// Package file is the lock service that needs no server: flock(2) on one file a
// name, in one directory of one machine.
//
// The lock "backup" is the kernel lock on DIR/backup.lock, so that it excludes
// flock(1) on the same path, and is excluded by it. Beside it the directory
// DIR/backup.dlock holds what flock(2) cannot say:
//
//	record.json  holders (owner, mode, fence, expiry of detached ones); record.spare
//	             is the file that will be the next record
//	mutex        locked for the moment in which the record is read or changed
//	turnstile    locked by the head of the line while it waits; the rest of the line
//	             waits for the turnstile, in the kernel, first come first served
//	live-TOKEN   locked by one contender for as long as it lives
//
// A holder that the record names is believed only while its live file is locked,
// so a crash frees everything that the dead one had. Locks are taken in the order
// turnstile, public lock, mutex; nothing blocks under the mutex.
package file

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
)

// MaxTTL is the longest lease of a detached lock.
const MaxTTL = 365 * 24 * time.Hour

// Options place a Backend.
type Options struct {
	Dir       string // absolute
	Namespace string
	Network   bool        // a network file system is accepted
	Implicit  bool        // Dir is the default, no one named it
	Perm      os.FileMode // of Dir when it is made; 0 is 0700
}

// Backend is a directory of locks. It is opened when first used.
type Backend struct{ opts Options }

var _ backend.Backend = (*Backend)(nil)

// New returns the Backend of a directory, which need not exist yet.
func New(opts Options) *Backend { return &Backend{opts} }

// ParseURL reads file:///dir and file:///dir?network=ok.
func ParseURL(u *url.URL) (Options, error) {
	if u.Opaque != "" || u.Host != "" || u.User != nil || !filepath.IsAbs(u.Path) {
		return Options{}, fmt.Errorf("%w backend URL: a file URL is file:///absolute/directory", backend.ErrInvalid)
	}
	opts := Options{Dir: filepath.Clean(u.Path)}
	q, err := backend.URLOptions(u, "network")
	if err != nil || q["network"] != "" && q["network"] != "ok" {
		return Options{}, fmt.Errorf("%w backend URL: a file URL knows only ?network=ok", backend.ErrInvalid)
	}
	opts.Network = q["network"] == "ok"
	if u.Fragment != "" {
		return Options{}, fmt.Errorf("%w backend URL: a file URL has no fragment", backend.ErrInvalid)
	}
	return opts, nil
}

// Limits tells the bounds: the kernel holds a run's lock, so it has no deadline.
func (b *Backend) Limits() backend.Limits {
	return backend.Limits{
		Kind: "file", Address: "file://" + b.opts.Dir, Implicit: b.opts.Implicit,
		MinTTL: time.Second, MaxTTL: MaxTTL, NoDeadline: true,
	}
}

// Close has nothing to close: each operation closes what it opened.
func (b *Backend) Close() error { return nil }

// Attach finds a detached hold by its token.
func (b *Backend) Attach(ctx context.Context, name, token string, ttl time.Duration) (backend.Hold, error) {
	l, err := b.open(name)
	if err != nil {
		return nil, lostIfMissing(err)
	}
	hold := &detached{lock: l, token: token, ttl: ttl}
	err = l.view(ctx, func(s *state) error {
		i := slices.IndexFunc(s.rec.Holders, func(h record.Holder) bool { return h.Token == token && !h.Tail })
		switch {
		case i < 0:
			return backend.ErrLost
		case s.rec.Holders[i].Expires == 0:
			return backend.ErrRunning
		}
		hold.fence = s.rec.Holders[i].Fence
		return nil
	})
	if err != nil {
		l.close()
		return nil, lostIfMissing(err)
	}
	return hold, nil
}

// Revoke marks a run's hold, so that its run stops, and ends a detached one. A
// kernel lock cannot be taken from its holder: with now that is ErrUnsupported.
func (b *Backend) Revoke(ctx context.Context, name, prefix string, now bool) (backend.Holder, error) {
	l, err := b.open(name)
	if err != nil {
		return backend.Holder{}, lostIfMissing(err)
	}
	defer l.close()
	var holder backend.Holder
	err = l.change(ctx, func(s *state) error {
		h, err := s.rec.Revoke(s.now, prefix, false)
		if err != nil {
			return err
		}
		if holder = h.Status(s.now); now && h.Expires == 0 {
			return fmt.Errorf("%w: the kernel holds this lock for its process and frees it for nobody else; signal pid %d",
				backend.ErrUnsupported, h.Owner.PID)
		}
		return nil
	})
	return holder, lostIfMissing(err)
}

// lostIfMissing turns the absence of a lock's files into ErrLost.
func lostIfMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return backend.ErrLost
	}
	return err
}

// failed says what could not be done, under the sentinel that the user must know.
func failed(doing string, err error) error {
	if errors.Is(err, backend.ErrDenied) || errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrInvalid) {
		return err
	}
	kind := backend.ErrUnavailable
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		kind = backend.ErrDenied
	}
	return &opError{doing: doing, kind: kind, err: err}
}

// opError reads "doing: cause", without repeating its kind in words.
type opError struct {
	doing     string
	kind, err error
}

func (e *opError) Error() string   { return e.doing + ": " + e.err.Error() }
func (e *opError) Unwrap() []error { return []error{e.kind, e.err} }
