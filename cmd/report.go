package cmd

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/runner"
)

// reportFlags say where a run tells how it went. An exit code cannot: the command may
// have returned any.
type reportFlags struct {
	file string
	fd   count
	to   *os.File // the descriptor; nil for none
}

func (f *reportFlags) addFlags(flags flagSet) {
	f.fd = -1
	flags.StringVar(&f.file, "report", "", "at the end, replace `FILE` by one JSON object that tells how the run went")
	flags.Var(&f.fd, "report-fd", "write that object to the open file descriptor `N`")
	flags.Lookup("report-fd").DefValue = ""
}

// open finds out before the lock is taken whether the report can be written.
func (f *reportFlags) open(flags flagSet) error {
	switch {
	case flags.Changed("report") && flags.Changed("report-fd"):
		f.file = ""
		return usageError("--report and --report-fd exclude each other")
	case flags.Changed("report"):
		file := f.file
		f.file = "" // until it is known to be one
		if err := checkReplaceable(file); err != nil {
			return usageError("--report: %v", err)
		}
		f.file = file
	case flags.Changed("report-fd"):
		mode, err := unix.FcntlInt(uintptr(f.fd), unix.F_GETFL, 0)
		if f.fd < 0 || err != nil || mode&unix.O_ACCMODE == unix.O_RDONLY {
			return usageError("--report-fd %d: no open descriptor that can be written to", f.fd)
		}
		if f.fd > 2 {
			unix.CloseOnExec(int(f.fd)) // it is ours, not the command's
		}
		f.to = os.NewFile(uintptr(f.fd), "report")
	}
	return nil
}

// The words for how a run went.
const (
	outcomeOK      = "ok"      // the command returned 0
	outcomeFailed  = "failed"  // the command returned something else
	outcomeSignal  = "signal"  // a signal ended the command, or dlock before it began
	outcomeBusy    = "busy"    // the lock was not acquired
	outcomeLost    = "lost"    // the lock was lost
	outcomeMaxRun  = "max-run" // --max-run was reached
	outcomeBackend = "backend" // the lock service is unreachable, failing or refuses us
	outcomeCommand = "command" // there is no such command, or it cannot be executed
	outcomeUsage   = "usage"   // bad flag, bad name, bad URL
	outcomeDefect  = "defect"  // in dlock
)

// outcomeOf is the word for how a run went: what was noted, or what the code stands for.
func outcomeOf(e *exitError) string {
	if e.outcome != "" {
		return e.outcome
	}
	switch e.code {
	case 0:
		return outcomeOK
	case exitUsage:
		return outcomeUsage
	case exitUnavailable, exitDenied:
		return outcomeBackend
	case exitBusy:
		return outcomeBusy
	case exitLost:
		return outcomeLost
	case exitMaxRun:
		return outcomeMaxRun
	case 126, 127:
		return outcomeCommand
	}
	return outcomeDefect
}

// account is what is known of a run; its JSON is the report. Durations are seconds;
// what does not apply is left out.
type account struct {
	Outcome  string       `json:"outcome"`
	ExitCode int          `json:"exit_code"` // dlock's own
	Name     string       `json:"name"`
	Backend  *jsonBackend `json:"backend,omitempty"`
	PID      int          `json:"pid"`
	Started  time.Time    `json:"started_at"`
	Waited   float64      `json:"waited_seconds"`
	*tenure
	CommandCode   *int   `json:"command_exit_code,omitempty"`
	CommandSignal string `json:"command_signal,omitempty"`
	Message       string `json:"message,omitempty"`

	begun boottime.Instant
}

// tenure is the part of an account that only a run has which got the lock.
type tenure struct {
	Held     float64 `json:"held_seconds"`
	Fence    uint64  `json:"fence"`
	Token    string  `json:"token"`
	Renewals int64   `json:"renewals"`

	taken boottime.Instant
}

func newAccount(name string) *account {
	return &account{Name: name, PID: os.Getpid(), Started: time.Now().Round(time.Millisecond), begun: boottime.Now()}
}

// asked notes which service is asked.
func (c *account) asked(l backend.Limits) { c.Backend = &jsonBackend{l.Kind, l.Address} }

// took notes that the lock is held.
func (c *account) took(g backend.Grant) {
	c.tenure = &tenure{Fence: g.Fence, Token: g.Token, taken: boottime.Now()}
}

// gave notes that the hold is over.
func (c *account) gave(renewals int64) {
	c.Held, c.Renewals = boottime.Now().Sub(c.taken).Seconds(), renewals
}

// ended notes how the command ended.
func (c *account) ended(r runner.Result) {
	if r.Signal != 0 {
		c.CommandSignal = signalName(r.Signal)
	} else {
		c.CommandCode = &r.Code
	}
}

// close notes how it all went; nil is a success.
func (c *account) close(e *exitError) {
	if e == nil {
		e = &exitError{}
	}
	c.Outcome, c.ExitCode = outcomeOf(e), e.code
	if e.msg != "" {
		c.Message = e.msg
	}
	until := boottime.Now()
	if c.tenure != nil {
		until = c.taken
	}
	c.Waited = until.Sub(c.begun).Seconds()
}

// reported runs o, unless err says that it cannot be run, and writes the report, also
// if there is a defect in dlock.
func (a *app) reported(o *runOptions, err error) (failed error) {
	c := newAccount(o.name)
	defer func() {
		r := recover()
		if r != nil {
			failed = &exitError{code: exitDefect, msg: fmt.Sprint(r)}
		}
		c.close(a.explainOrNil(o.name, failed))
		a.writeReport(o, c)
		if r != nil {
			panic(r)
		}
	}()
	if err == nil {
		err = a.named(o.name, a.run(o, c))
	}
	return err
}

func (a *app) explainOrNil(lock string, err error) *exitError {
	if err == nil {
		return nil
	}
	return a.explain(lock, err)
}

// writeReport tells of a failure, which changes no exit code: the command has run.
func (a *app) writeReport(o *runOptions, c *account) {
	if o.report.file == "" && o.report.to == nil {
		return
	}
	text, err := json.Marshal(c)
	if err == nil {
		text = append(text, '\n')
		if o.report.to != nil {
			_, err = o.report.to.Write(text)
		} else {
			err = replaceFile(o.report.file, text)
		}
	}
	if err != nil {
		a.ui.warn(o.name, "the report was not written: %v", err)
	}
}

// checkReplaceable tells whether replaceFile can work.
func checkReplaceable(path string) error {
	if path == "" {
		return fmt.Errorf("the file's name is empty")
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	if err := unix.Access(filepath.Dir(path), unix.W_OK|unix.X_OK); err != nil {
		return &os.PathError{Op: "write to", Path: filepath.Dir(path), Err: err}
	}
	return nil
}

// replaceFile writes a file so that whoever reads it finds all of the old text or all
// of the new one. A file that is there keeps its permissions.
func replaceFile(path string, text []byte) (err error) {
	if err := checkReplaceable(path); err != nil { // a device must stay one
		return err
	}
	temp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%.100s.%d.tmp", filepath.Base(path), os.Getpid()))
	_ = os.Remove(temp) // of a process that had our number and was killed
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_CLOEXEC, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp)
		}
	}()
	if info, err := os.Stat(path); err == nil {
		_ = f.Chmod(info.Mode().Perm())
	}
	_, err = f.Write(text)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(temp, path)
}
