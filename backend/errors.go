package backend

import "errors"

// What can go wrong, whichever the service. Services wrap these with what they
// were doing; the command line maps them to exit codes.
var (
	// ErrLost means that the token does not hold the lock (any more).
	ErrLost = errors.New("no longer held")
	// ErrRevoked means that somebody forced the release of this hold.
	ErrRevoked = errors.New("revoked by release --force")
	// ErrRunning means that the token belongs to a living dlock run.
	ErrRunning = errors.New("the token belongs to a running dlock run")
	// ErrUnavailable means that the service does not answer or does not work.
	ErrUnavailable = errors.New("lock service unavailable")
	// ErrDenied means that the service refuses this user.
	ErrDenied = errors.New("permission denied")
	// ErrInvalid means that what was asked for makes no sense: a bad name, URL or
	// option, another number of slots than the one in force.
	ErrInvalid = errors.New("invalid")
	// ErrUnsupported means that this service cannot do what was asked for.
	ErrUnsupported = errors.New("not supported")
)

// BusyError says that somebody else has the lock.
type BusyError struct {
	Holders []Holder
	Ahead   int // waiters in line
}

// Error returns "busy"; who holds the lock is for the caller to print.
func (*BusyError) Error() string { return "busy" }
