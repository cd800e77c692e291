package file

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
)

// openLive makes and locks the file that proves this contender alive. It is called
// under the mutex, so that whoever looks for dead ones there sees it locked.
func (c *contender) openLive() (err error) {
	d, name := c.liveFile(c.req.Token)
	c.live, err = tryFlock(d, name, unix.LOCK_EX)
	return err
}

// removeLive removes the live file of a contender that is dead.
func (l *lock) removeLive(token string) {
	if isToken(token) {
		_ = unix.Unlinkat(l.state.fd(), livePrefix+token, 0)
	}
}

func (c *contender) dropLive() {
	if c.live == nil {
		return
	}
	c.removeLive(c.req.Token)
	unlock(c.live)
	c.live = nil
}

// enlist makes the contender visible in line: its live file tells who it is.
func (c *contender) enlist() error {
	if err := c.openLive(); err != nil {
		return err
	}
	data, err := json.Marshal(record.Waiter{Token: c.req.Token, Mode: c.req.Mode, Owner: c.req.Owner, Since: now()})
	if err != nil {
		return err
	}
	fd, err := unix.Openat(c.state.fd(), livePrefix+c.req.Token, unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return failed("place in line", err)
	}
	f := os.NewFile(uintptr(fd), c.live.Name())
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err != nil {
		return failed("place in line", err)
	}
	return nil
}

// waiters lists those in line by the time at which they joined it, and removes the
// live files of the dead, which only the holder of the mutex may do.
func (l *lock) waiters(rec record.Record) []record.Waiter {
	waiters, dead := l.readWaiters(rec)
	for _, token := range dead {
		l.removeLive(token)
	}
	return waiters
}

// readWaiters lists those in line, and the tokens of the dead.
func (l *lock) readWaiters(rec record.Record) (waiters []record.Waiter, dead []string) {
	d, err := l.state.reopen()
	if err != nil {
		return nil, nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	for _, name := range names {
		token, ok := strings.CutPrefix(name, livePrefix)
		if !ok {
			continue
		}
		if !l.lives(token) {
			dead = append(dead, token)
			continue
		}
		holds := func(h record.Holder) bool { return h.Token == token }
		if w, ok := l.readWaiter(name); ok && !slices.ContainsFunc(rec.Holders, holds) {
			waiters = append(waiters, w)
		}
	}
	slices.SortFunc(waiters, func(a, b record.Waiter) int { return cmp.Compare(a.Since, b.Since) })
	return waiters, dead
}

// readWaiter reads a live file; one that is empty belongs to no waiter.
func (l *lock) readWaiter(name string) (record.Waiter, bool) {
	f, err := l.state.openFile(name, unix.O_RDONLY)
	if err != nil {
		return record.Waiter{}, false
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecord))
	var w record.Waiter
	if err != nil || json.Unmarshal(data, &w) != nil || !w.Mode.Valid() {
		return record.Waiter{}, false
	}
	return w, true
}

// statuses shows waiters as they are now.
func statuses(waiters []record.Waiter, at record.Time) []backend.Waiter {
	var shown []backend.Waiter
	for _, w := range waiters {
		shown = append(shown, w.Status(at))
	}
	return shown
}
