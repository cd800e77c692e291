// Package resource is what the critical sections of the torture harness share, and how
// they see whether they share it when they must not: by kernel locks that the
// command's own processes hold, never by the lock under test. So a dead dlock cannot
// hide that its command lives on. It also checks fences as a careful resource would.
package resource

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// Hold is the hold under which a section runs.
type Hold struct {
	ID    string // unique for each attempt to take the lock
	Token string
	Fence uint64
	Mode  backend.Mode
}

// Event is a line of the log.
type Event struct {
	Hold
	What What
	At   boottime.Instant
	PID  int
	Text string // of Overlap and Regression: what was found
}

// What is the kind of an event.
type What string

// The kinds of events.
const (
	Enter      What = "enter"
	Write      What = "write"      // the last one so far, each time
	Leave      What = "leave"      // by itself
	Overlap    What = "overlap"    // somebody else is inside, who must not be
	Excused    What = "excused"    // the same, but all of them was frozen: nothing could stop it
	Regression What = "regression" // the fence is not larger than all before it
	Refused    What = "refused"    // a write with a smaller fence than one already seen
)

// The files of a resource.
const (
	logFile   = "log"
	ownerFile = "owner" // who entered last, exclusively
	fenceFile = "fence" // the largest fence seen
	mutexFile = "mutex" // of all that looks and then acts
	frozenDir = "frozen"
)

// The files whose kernel locks are the stays: every stay has guardFile, shared and slots
// ones, which share it, their own kind's too, and slots ones one of the slots.
const (
	guardFile  = "guard"
	sharedFile = "shared"
	slotsFile  = "slots"
)

// Dir is a resource: a directory.
type Dir string

// New makes a resource in an empty directory.
func New(dir string) (Dir, error) { return Dir(dir), os.Mkdir(filepath.Join(dir, frozenDir), 0o700) }

func (d Dir) path(name string) string { return filepath.Join(string(d), name) }

// Visit is one stay inside.
type Visit struct {
	dir   Dir
	hold  Hold
	files []*os.File // their locks are the stay; none if it was an overlap

	inherited bool // by a process of the section, whose locks they are too
}

// Enter enters the resource. What must not be is noted, and stops nobody.
func (d Dir) Enter(h Hold) (*Visit, error) {
	v := &Visit{dir: d, hold: h}
	err := d.alone(func() (err error) {
		if v.files, err = d.lock(h.Mode); errors.Is(err, unix.EWOULDBLOCK) {
			err = d.blame(h)
		}
		if err != nil || h.Mode.Kind != backend.Exclusive {
			return err
		}
		return errors.Join(os.WriteFile(d.path(ownerFile), []byte(h.Token), 0o600), d.present(h, Regression))
	})
	return v, errors.Join(err, d.note(Enter, h, ""))
}

// Files are what a process of the section must inherit to be inside too.
func (v *Visit) Files() []*os.File {
	v.inherited = true
	return v.files
}

// Write writes to the resource, which refuses it if a larger fence was seen.
func (v *Visit) Write() error {
	if v.hold.Mode.Kind == backend.Exclusive {
		if err := v.dir.alone(func() error { return v.dir.present(v.hold, Refused) }); err != nil {
			return err
		}
	}
	return v.dir.note(Write, v.hold, "")
}

// Leave leaves the resource, unless a process that inherited the files stays inside.
func (v *Visit) Leave() error {
	err := v.dir.note(Leave, v.hold, "")
	for _, f := range v.files {
		if !v.inherited { // a child that is just being started has a copy for a moment
			err = errors.Join(err, unix.Flock(int(f.Fd()), unix.LOCK_UN))
		}
		err = errors.Join(err, f.Close())
	}
	return err
}

// alone runs f while no other process does the same.
func (d Dir) alone(f func() error) error {
	mutex, err := d.open(mutexFile)
	if err != nil {
		return err
	}
	defer mutex.Close()
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(mutex.Fd()), unix.LOCK_EX)
	}
	return errors.Join(err, f())
}

// lock takes the kernel locks that stand for a mode, or fails with EWOULDBLOCK.
func (d Dir) lock(m backend.Mode) (files []*os.File, err error) {
	take := func(name string, how int) bool {
		var f *os.File
		if f, err = d.flock(name, how); err == nil {
			files = append(files, f)
		}
		return err == nil
	}
	ok := false
	switch m.Kind {
	case backend.Exclusive:
		ok = take(guardFile, unix.LOCK_EX)
	case backend.Shared:
		ok = d.unlocked(slotsFile) && take(guardFile, unix.LOCK_SH) && take(sharedFile, unix.LOCK_SH)
	case backend.Slots:
		ok = d.unlocked(sharedFile) && take(guardFile, unix.LOCK_SH) && take(slotsFile, unix.LOCK_SH)
		for i := 0; ok; i++ {
			if i == m.N {
				ok = false
			} else if take(fmt.Sprint("slot", i), unix.LOCK_EX) {
				break
			}
		}
	}
	if ok {
		return files, nil
	}
	for _, f := range files {
		f.Close()
	}
	if err == nil {
		err = unix.EWOULDBLOCK
	}
	return nil, err
}

// unlocked tells whether nobody has a kernel lock on the file.
func (d Dir) unlocked(name string) bool {
	f, err := d.flock(name, unix.LOCK_EX)
	if err != nil {
		return false
	}
	f.Close()
	return true
}

func (d Dir) flock(name string, how int) (*os.File, error) {
	f, err := d.open(name)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (d Dir) open(name string) (*os.File, error) {
	return os.OpenFile(d.path(name), os.O_RDWR|os.O_CREATE, 0o600)
}

// blame notes an overlap. It is excused while one that was inside is frozen, with all
// that could have stopped it.
func (d Dir) blame(h Hold) error {
	what := Overlap
	if frozen, err := os.ReadDir(d.path(frozenDir)); err != nil || len(frozen) > 0 {
		what = Excused
	}
	return d.note(what, h, "the last to enter was "+d.Owner())
}

// present shows the resource a fence, and notes as what it is refused.
func (d Dir) present(h Hold, refusal What) error {
	text, err := os.ReadFile(d.path(fenceFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	seen, _ := strconv.ParseUint(string(text), 10, 64)
	if h.Fence < seen || refusal == Regression && h.Fence == seen {
		return d.note(refusal, h, fmt.Sprintf("fence %d after %d", h.Fence, seen))
	}
	return os.WriteFile(d.path(fenceFile), strconv.AppendUint(nil, h.Fence, 10), 0o600)
}

// Owner is the token of who entered last, exclusively.
func (d Dir) Owner() string {
	owner, _ := os.ReadFile(d.path(ownerFile))
	return string(owner)
}

// Freeze excuses the hold of token from what it does until Thaw.
func (d Dir) Freeze(token string) error { return os.WriteFile(d.frozen(token), nil, 0o600) }

// Thaw ends the excuse, once nothing of the hold lives any more.
func (d Dir) Thaw(token string) error { return os.Remove(d.frozen(token)) }

func (d Dir) frozen(token string) string {
	return filepath.Join(d.path(frozenDir), filepath.Base(token))
}

// note appends an event to the log.
func (d Dir) note(what What, h Hold, text string) error {
	line, err := json.Marshal(Event{Hold: h, What: what, At: boottime.Now(), PID: os.Getpid(), Text: text})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(d.path(logFile), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// Events reads the log. A line that a killed process has not finished is left out.
func (d Dir) Events() ([]Event, error) {
	f, err := os.Open(d.path(logFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	var events []Event
	for line := range strings.Lines(string(text)) {
		var e Event
		if json.Unmarshal([]byte(line), &e) == nil {
			events = append(events, e)
		}
	}
	return events, err
}
