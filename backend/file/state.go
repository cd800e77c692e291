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
	maxRecord     = 1 << 20 // bytes; more is noise
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

// state is a lock's record while the mutex is held.
type state struct {
	lock *lock
	rec  record.Record
	now  record.Time
}

// now is the time by which records are judged.
func now() record.Time { return record.Time(boottime.Now() / boottime.Instant(time.Microsecond)) }

// change runs edit on the record under the mutex, and stores what it made of it
// unless it fails.
func (l *lock) change(ctx context.Context, edit func(*state) error) error {
	mutex, err := l.lockState(ctx, unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock(mutex)
	s := &state{lock: l, now: now()}
	if s.rec, err = l.load(); err != nil {
		return err
	}
	l.bury(&s.rec)
	s.rec.Expire(s.now)
	if err := edit(s); err != nil {
		return err
	}
	return l.store(s.rec)
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

// view returns the record as it is, without what is dead.
func (l *lock) view(ctx context.Context) (record.Record, error) {
	mutex, err := l.lockState(ctx, unix.LOCK_SH)
	if err != nil {
		return record.Record{}, err
	}
	defer unlock(mutex)
	rec, err := l.load()
	if err != nil {
		return rec, err
	}
	l.bury(&rec)
	rec.Expire(now())
	return rec, nil
}

// bury takes those holders out of the record whose process has ended: nobody has
// their live file locked.
func (l *lock) bury(rec *record.Record) {
	alive := rec.Holders[:0]
	for _, h := range rec.Holders {
		if h.Expires != 0 || l.lives(h.Token) {
			alive = append(alive, h)
		}
	}
	rec.Holders = alive
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
func (l *lock) load() (record.Record, error) {
	rec, err := l.read()
	var bad *badRecordError
	if errors.As(err, &bad) || errors.Is(err, fs.ErrNotExist) {
		rec, err = stored{}, nil
	}
	if err != nil {
		return record.Record{}, err
	}
	if rec.fromEarlierBoot() {
		// A reboot ended every hold, and the machine may have gone down before the last
		// fences reached the disk: go on from the wall clock, which counts faster.
		rec.Holders, rec.Queue = nil, nil
		rec.RaiseFence(wallMicros())
	}
	return rec.Record, nil
}

// fromEarlierBoot tells whether the machine has gone down since. Where the system
// names no boots, a hold that began in the future shows it.
func (s *stored) fromEarlierBoot() bool {
	began := func(h record.Holder) bool { return h.Since > now() }
	return s.Version == 0 || s.Boot != boottime.BootID() || slices.ContainsFunc(s.Holders, began)
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
