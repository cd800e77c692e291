package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
)

// errForeign means that /proc belongs to another process namespace: its numbers are
// those of other processes.
var errForeign = errors.New("/proc is missing or shows another process namespace")

// ours tells whether the numbers in /proc mean what they mean to us.
var ours = sync.OnceValue(func() bool {
	self, err := os.Readlink("/proc/self")
	return err == nil && self == strconv.Itoa(os.Getpid())
})

// Namespace names the process namespace that we are in; it is empty where that is
// unknown. Process numbers compare only within one.
func Namespace() string {
	ns, _ := os.Readlink("/proc/self/ns/pid")
	return ns
}

// List returns the processes that can be seen, in no order. Those that end
// meanwhile may be missing.
func List() ([]Process, error) {
	if !ours() {
		return nil, errForeign
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []Process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := Get(pid); err == nil {
			list = append(list, p)
		}
	}
	return list, nil
}

// Get looks one process up.
func Get(pid int) (Process, error) {
	if !ours() {
		return Process{}, errForeign
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Process{}, err
	}
	return parseStat(pid, stat)
}

// parseStat reads /proc/PID/stat. The second field is the command's name in
// brackets, which may itself contain blanks and brackets (proc_pid_stat(5)).
func parseStat(pid int, stat []byte) (Process, error) {
	end := bytes.LastIndexByte(stat, ')')
	fields := bytes.Fields(stat[end+1:])
	if end < 0 || len(fields) < 20 {
		return Process{}, fmt.Errorf("process %d: cannot read its state", pid)
	}
	ppid, err1 := strconv.Atoi(string(fields[1]))
	pgid, err2 := strconv.Atoi(string(fields[2]))
	threads, err3 := strconv.Atoi(string(fields[17]))
	start, err4 := strconv.ParseUint(string(fields[19]), 10, 64)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return Process{}, fmt.Errorf("process %d: cannot read its state: %w", pid, err)
	}
	// The state is the first thread's: the others may live on, or be slow to die.
	state := fields[0][0]
	dead := (state == 'Z' || state == 'X') && threads <= 1
	return Process{PID: pid, PPID: ppid, PGID: pgid, Zombie: dead, Stopped: state == 'T' || state == 't', Start: start}, nil
}

// Command returns the command line of a process, its arguments joined by blanks,
// or its short name where the command line is hidden or empty.
func Command(pid int) string {
	if !ours() {
		return ""
	}
	dir := "/proc/" + strconv.Itoa(pid)
	if args, err := os.ReadFile(dir + "/cmdline"); err == nil && len(args) > 0 {
		return strings.ReplaceAll(strings.TrimRight(string(args), "\x00"), "\x00", " ")
	}
	comm, _ := os.ReadFile(dir + "/comm")
	return strings.TrimSpace(string(comm))
}
