// Package backend says what a lock service can do for dlock: the interface that
// every service implements, the types that cross it, and its errors. It contains
// no service; those are the packages below it.
package backend

import (
	"context"
	"os"
	"slices"
	"time"
)

// Backend is one lock service, seen through one namespace. Its methods may be
// called by several goroutines at once.
type Backend interface {
	// Acquire takes the lock req.Name under req.Token, and waits in line for it
	// unless req.NoWait. It fails with a *BusyError when somebody else has it and
	// the caller does not wait (any longer); when ctx ends it leaves the line and
	// returns the context's cause, wrapped. A request that is sent again with the
	// same token is harmless.
	Acquire(ctx context.Context, req Request) (Hold, error)

	// Attach finds the detached hold that token names, from any process. A positive
	// ttl replaces the one it was taken with. It fails with ErrLost when the token
	// holds nothing (any more) and with ErrRunning when it belongs to a living run.
	Attach(ctx context.Context, name, token string, ttl time.Duration) (Hold, error)

	// Revoke ends the hold whose token is, or begins with, prefix: a detached one at
	// once, a run's as soon as it has stopped its command. With now it is freed at
	// once in either case, or refused with ErrUnsupported. It returns the holder.
	Revoke(ctx context.Context, name, prefix string, now bool) (Holder, error)

	// Inspect reports on the named locks, or on every known one when none is named.
	// It disturbs nobody. A named lock that is unknown is reported as free.
	Inspect(ctx context.Context, names ...string) ([]Status, error)

	// Limits tells what the service can and cannot do. It asks nobody.
	Limits() Limits

	// Close gives up connections and descriptors; holds are not released by it.
	Close() error
}

// Request is one wish to hold a lock.
type Request struct {
	Name  string
	Token string // a fresh UUID, one per acquisition
	Mode  Mode
	TTL   time.Duration // lease length
	Grace time.Duration // what the holder's command is given to end, for services that settle

	NoWait     bool // fail with a *BusyError instead of waiting
	TailIsBusy bool // a tail is not waited for: *BusyError at once
	Detached   bool // the hold outlives this process, until its lease ends

	Owner Owner

	// Waiting, if set, is called when the wait begins, before anything blocks. The
	// error that it returns ends the wait and is returned by Acquire.
	Waiting func(Wait) error
}

// Waits tells whether the contender is willing to wait for these holders.
func (r Request) Waits(holders []Holder) bool {
	if r.NoWait {
		return false
	}
	isTail := func(h Holder) bool { return h.Tail }
	return !r.TailIsBusy || !slices.ContainsFunc(holders, isTail)
}

// Wait is what a contender learns when its wait begins.
type Wait struct {
	Holders []Holder
	Ahead   int // waiters before this one
}

// Hold is a lock that was taken.
type Hold interface {
	// Grant tells what was granted.
	Grant() Grant
	// Renew extends the lease; it never shortens it. ErrLost and ErrRevoked are
	// final; any other error means that the answer is unknown.
	Renew(ctx context.Context) (Lease, error)
	// Release gives the lock back if the token still holds it, else ErrLost. A tail
	// above zero leaves the lock taken for that long, by nobody and not renewable.
	Release(ctx context.Context, tail time.Duration) error
	// Lost delivers at most one error, ErrLost or ErrRevoked, when the service itself
	// reports the end of the hold between renewals. It is nil where none can.
	Lost() <-chan error
	// KeepOpen lists the descriptors that are the lock, for the guard to hold as
	// long as the command may live; none where a service across the network has it.
	KeepOpen() []*os.File
}

// Grant is what the service granted.
type Grant struct {
	Token string // ours, or the service's own (Consul's session id)
	Fence uint64
	Lease Lease
}

// Limits are the bounds of a service.
type Limits struct {
	Kind           string        // "file", "redis", …
	Address        string        // where it is, without secrets
	Implicit       bool          // no one named it: the built-in default
	MinTTL, MaxTTL time.Duration // of a lease
	NoDeadline     bool          // a run's hold does not end by itself (the kernel holds it)
	NoDetached     string        // why a hold cannot outlive its process; empty where it can
}
