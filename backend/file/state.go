package file

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
	"github.com/dlock/dlock/internal/boottime"
)

const (
	recordName    = "record.json"
	spareName     = "record.spare"
	recordVersion = 1
	maxRecord     = 8 << 20 // bytes; more is noise
)

// stored is the record as it stands in its file. Its times are microseconds on the
// boot-time clock, so they mean something only in the boot that it names.
type stored struct {
	Version   int    `json:"version"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Boot      string `json:"boot"`
	record.Record
}

// state is a lock's record while the mutex is held, without what is dead.
type state struct {
	rec record.Record
	bad error // the file held no record of ours
	now record.Time
}

// now is the time by which records are judged.
func now() record.Time { return record.Time(boottime.Now() / boottime.Instant(time.Microsecond)) }

// change runs edit on the record under the mutex, and stores what it made of it
// unless it fails.
func (l *lock) change(ctx context.Context, edit func(*state) error) error {
	return l.locked(ctx, unix.LOCK_EX, func(s *state, dead []string) error {
		for _, token := range dead {
			l.removeLive(token)
		}
		if err := edit(s); err != nil {
			return err
		}
		return l.store(s.rec)
	})
}

// view runs look on the record under the mutex, beside others who look.
func (l *lock) view(ctx context.Context, look func(*state) error) error {
	return l.locked(ctx, unix.LOCK_SH, func(s *state, _ []string) error { return look(s) })
}

// locked runs do under the mutex, with the record and the tokens of dead holders.
func (l *lock) locked(ctx context.Context, how int, do func(s *state, dead []string) error) error {
	mutex, err := l.lockState(ctx, how)
	if err != nil {
		return err
	}
	defer unlock(mutex)
	s := &state{now: now()}
	if err := l.load(s); err != nil {
		return err
	}
	dead := l.bury(&s.rec)
	s.rec.Expire(s.now)
	return do(s, dead)
}

// mutexPatience is how long the mutex is waited for. Nobody keeps it for longer than
// it takes to write a small file, unless he was stopped.
const mutexPatience = time.Minute

// lockState locks the mutex. Whatever ends the wait, it is the lock service that did
// not answer, and not a holder that was busy.
func (l *lock) lockState(ctx context.Context, how int) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, mutexPatience)
	defer cancel()
	mutex, err := waitFlock(ctx, l.state, "mutex", how)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("a process has it locked and does not go on; look for a stopped dlock (%w)", err)
	}
	if err != nil {
		return nil, failed(l.state.Name()+"/mutex", err)
	}
	return mutex, nil
}

// bury takes those holders out of the record whose process has ended, which is when
// nobody has their live file locked, and returns their tokens.
func (l *lock) bury(rec *record.Record) (dead []string) {
	alive := rec.Holders[:0]
	for _, h := range rec.Holders {
		if h.Expires != 0 || l.lives(h.Token) {
			alive = append(alive, h)
		} else {
			dead = append(dead, h.Token)
		}
	}
	rec.Holders = alive
	return dead
}

// lives tells whether some process has the contender's live file locked.
func (l *lock) lives(token string) bool {
	if !isToken(token) {
		return false // somebody edited the record
	}
	d, name := l.liveFile(token)
	f, err := d.openFile(name, unix.O_RDONLY)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // what cannot be looked at counts as alive
	}
	defer f.Close()
	return errors.Is(flock(f, unix.LOCK_SH|unix.LOCK_NB), errWouldBlock)
}

// isToken tells whether token can be part of a file name.
func isToken(token string) bool {
	for _, c := range token {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && c != '-' {
			return false
		}
	}
	return token != "" && len(token) <= 64
}

// load reads the record. One that is missing, torn or foreign counts as empty:
// kernel locks decide who holds, and the record of a detached lock can only be torn
// by a crash of the machine, which frees it.
func (l *lock) load(s *state) error {
	rec, err := l.read()
	var bad *badRecordError
	switch {
	case errors.As(err, &bad):
		rec, s.bad = stored{}, err
	case errors.Is(err, fs.ErrNotExist):
		rec = stored{}
	case err != nil:
		return err
	}
	old, err := rec.fromEarlierBoot(boottime.BootID())
	if err != nil {
		return err
	}
	if old {
		// A reboot ended every hold, and the machine may have gone down before the last
		// fences reached the disk: go on from the wall clock, which counts faster.
		rec.Holders, rec.Queue = nil, nil
		rec.RaiseFence(wallMicros())
	}
	s.rec = rec.Record
	return nil
}

// fromEarlierBoot tells whether the machine has gone down since. It fails where that
// cannot be told, or the times in the record are those of another clock: who guesses
// there lets a second holder in.
func (s *stored) fromEarlierBoot(boot string) (bool, error) {
	if boot == "" && boottime.NamesBoots {
		return false, fmt.Errorf("%w: this boot cannot be told from another: /proc/sys/kernel/random/boot_id cannot be read here", backend.ErrUnavailable)
	}
	this, _, _ := strings.Cut(boot, boottime.Apart)
	that, _, _ := strings.Cut(s.Boot, boottime.Apart)
	switch {
	case s.Version == 0:
		return true, nil
	case boot == "":
		began := func(h record.Holder) bool { return h.Since > now() }
		return s.Boot != "" || slices.ContainsFunc(s.Holders, began), nil
	case this == that && boot != s.Boot && len(s.Holders) > 0:
		return false, fmt.Errorf("%w: the lock is in use in another time namespace, whose clock does not compare with this one", backend.ErrUnavailable)
	}
	return this != that, nil
}

func wallMicros() uint64 { return uint64(max(time.Now().UnixMicro(), 1)) }

// badRecordError means that the file holds no record of ours.
type badRecordError struct{ err error }

func (e *badRecordError) Error() string { return "the record cannot be read: " + e.err.Error() }

func (l *lock) read() (stored, error) {
	f, err := l.state.openFile(recordName, unix.O_RDONLY)
	if err != nil {
		return stored{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return stored{}, failed("record", err)
	}
	return parseRecord(data)
}

// parseRecord reads a record file. It fails with *badRecordError for what is not
// one, and with backend.ErrUnavailable for one of a later version.
func parseRecord(data []byte) (stored, error) {
	if len(data) > maxRecord {
		return stored{}, &badRecordError{errors.New("it is too long")}
	}
	var rec stored
	if err := json.Unmarshal(bytes.TrimSpace(data), &rec); err != nil {
		return stored{}, &badRecordError{err}
	}
	if rec.Version > recordVersion {
		return stored{}, fmt.Errorf("%w: the record is of version %d, written by a later dlock; upgrade this one",
			backend.ErrUnavailable, rec.Version)
	}
	if rec.Version < 1 {
		return stored{}, &badRecordError{errors.New("it has no version")}
	}
	for _, h := range rec.Holders {
		if !h.Mode.Valid() || h.Token == "" {
			return stored{}, &badRecordError{errors.New("it names an impossible holder")}
		}
	}
	return rec, nil
}

// store replaces the record: it writes the spare file and then lets both change
// names, so that a crash leaves the old record or the new one. Two files that take
// turns cost less than a new one each time: they have their blocks already, and ext4
// writes a file out at once when it takes the name of another.
func (l *lock) store(rec record.Record) error {
	data, err := json.Marshal(stored{
		Version: recordVersion, Name: l.name, Namespace: l.namespace, Boot: boottime.BootID(), Record: rec,
	})
	if err != nil {
		return fmt.Errorf("record: %w", err)
	}
	if len(data) >= maxRecord {
		return fmt.Errorf("%w: the record is full, %d holders are too many", backend.ErrUnavailable, len(rec.Holders))
	}
	if err := l.writeSpare(append(data, '\n')); err != nil {
		return failed("record", err)
	}
	if err := swap(l.state.fd(), spareName, recordName); err != nil {
		return failed("record", &fs.PathError{Op: "rename", Path: l.state.Name() + "/" + spareName, Err: err})
	}
	return nil
}

func (l *lock) writeSpare(data []byte) error {
	f, err := l.state.openFile(spareName, unix.O_WRONLY|unix.O_CREAT)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	return errors.Join(err, f.Close())
}
