package cmd

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/dlock/dlock/backend"
)

// lockFlags are the flags of run and acquire that say how to take a lock.
type lockFlags struct {
	noWait    bool
	wait      duration
	waitSet   bool
	shared    bool
	exclusive bool
	slots     count
	slotsSet  bool
	ttl       duration
	busyCode  count
	reason    string
}

func (f *lockFlags) addFlags(flags flagSet) {
	flags.BoolVarP(&f.noWait, "no-wait", "n", false, "fail at once if the lock is busy")
	flags.VarP(&f.wait, "wait", "w", "wait at most `D` (30s, 5m, 2d; a number is seconds; 0 is -n); default: for ever")
	flags.BoolVarP(&f.shared, "shared", "s", false, "shared (reader) hold: many shared, or one exclusive")
	flags.BoolVarP(&f.exclusive, "exclusive", "x", false, "exclusive hold (the default)")
	flags.Var(&f.slots, "slots", "at most `N` holders; all must ask for the same N")
	f.ttl = duration(30 * time.Second)
	flags.Var(&f.ttl, "ttl", "lease length `D`: a crash, or the end of a lock that acquire took, frees it then ($DLOCK_TTL)")
	f.busyCode = exitBusy
	flags.VarP(&f.busyCode, "busy-exit-code", "E", "exit with `N` when the lock is busy")
	flags.StringVar(&f.reason, "reason", "", "`text` that waiters and inspect show; in CI the job's URL is found by itself")
	hide(flags, "e", func() { flags.BoolVarP(&f.exclusive, "e", "e", false, "") })
	flags.SetNormalizeFunc(flockSpellings)
}

// hide adds a flag that flock(1) spells differently and that help does not show.
func hide(flags flagSet, name string, add func()) {
	add()
	_ = flags.MarkHidden(name) // fails only for a flag that was not added
}

// flockSpellings maps the long options of flock(1) to ours.
func flockSpellings(_ flagSet, name string) pflag.NormalizedName {
	switch name {
	case "nb", "nonblock", "nonblocking":
		name = "no-wait"
	case "timeout":
		name = "wait"
	case "conflict-exit-code":
		name = "busy-exit-code"
	}
	return pflag.NormalizedName(name)
}

// check refuses what contradicts itself, naming both sides.
func (f *lockFlags) check(flags flagSet) error {
	f.waitSet, f.slotsSet = flags.Changed("wait"), flags.Changed("slots")
	switch {
	case f.noWait && f.waitSet:
		return usageError("--no-wait and --wait exclude each other")
	case f.shared && f.exclusive:
		return usageError("--shared and --exclusive exclude each other")
	case f.shared && f.slotsSet:
		return usageError("--shared and --slots exclude each other")
	case f.exclusive && f.slotsSet:
		return usageError("--exclusive and --slots exclude each other")
	case f.slotsSet && f.slots < 1:
		return usageError("--slots %d: at least 1", f.slots)
	case f.busyCode < 0 || f.busyCode > 255:
		return usageError("--busy-exit-code %d: from 0 to 255", f.busyCode)
	case flags.Changed("busy-exit-code") && slices.Contains(reserved, int(f.busyCode)):
		return usageError("--busy-exit-code %d means something else; choose another", f.busyCode)
	}
	if f.waitSet && f.wait == 0 {
		f.noWait = true
	}
	return nil
}

func (f *lockFlags) mode() backend.Mode {
	switch {
	case f.shared:
		return backend.Mode{Kind: backend.Shared}
	case f.slotsSet:
		return backend.Mode{Kind: backend.Slots, N: int(f.slots)}
	}
	return backend.Mode{Kind: backend.Exclusive}
}

// durationFromEnv gives a flag the value of its variable, unless the flag was used.
func durationFromEnv(flags flagSet, flag string, d *duration, lookup func(string) (string, bool), variable string) error {
	v, ok := lookup(variable)
	if !ok || flags.Changed(flag) {
		return nil
	}
	if err := flags.Set(flag, v); err != nil {
		return usageError("%s: %v", variable, err)
	}
	return nil
}

// checkTTL holds a TTL against what the service can do.
func checkTTL(ttl duration, limits backend.Limits) error {
	if d := time.Duration(ttl); d < limits.MinTTL || d > limits.MaxTTL {
		return usageError("--ttl (or DLOCK_TTL) %s: from %s to %s", plainDuration(d), plainDuration(limits.MinTTL), plainDuration(limits.MaxTTL))
	}
	return nil
}

// checkName refuses a bad lock name.
func checkName(name string) error {
	if err := backend.CheckName(name); err != nil {
		return &exitError{code: exitUsage, msg: fmt.Sprintf("%v", err)}
	}
	return nil
}
