package backend

import (
	"time"
)

// OwnerKind says what stands behind a hold.
type OwnerKind string

// The kinds of owner.
const (
	Run      OwnerKind = "run"      // a living dlock run
	Detached OwnerKind = "detached" // taken by dlock acquire, no process behind it
	Foreign  OwnerKind = "foreign"  // another program
)

// Owner is who holds or waits, for people to read. Only a Foreign one's fields may
// be unknown. All of it is untrusted text.
type Owner struct {
	Kind    OwnerKind `json:"kind"`
	User    string    `json:"user,omitempty"`
	Host    string    `json:"host,omitempty"`
	BootID  string    `json:"boot_id,omitempty"`
	PIDNS   string    `json:"pid_ns,omitempty"` // the process namespace in which PID counts
	PID     int       `json:"pid,omitempty"`
	Start   uint64    `json:"start,omitempty"` // start of PID in the kernel's clock ticks after boot
	Command string    `json:"command,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

// Holder is one hold as the service shows it.
type Holder struct {
	Token   string // empty for a foreign holder
	Owner   Owner
	Mode    Mode
	Fence   uint64
	Held    time.Duration // since it was taken; negative where unknown
	Leased  bool          // it ends by itself, in Left
	Left    time.Duration
	Revoked bool // its run has been told to stop
	Tail    bool // what --min-hold left: nobody runs under it
}

// Waiter is one contender in line.
type Waiter struct {
	Owner   Owner
	Mode    Mode
	Waiting time.Duration // negative where unknown
}

// Status is what a service knows of one lock.
type Status struct {
	Name     string
	Holders  []Holder
	Waiters  []Waiter // in order, as far as the service knows it
	Fence    uint64   // the last one given out; 0 where none was
	Problems []string // what is odd, for people
	Err      error    // why the holders are not known; nil where they are
}
