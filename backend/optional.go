package backend

import "context"

// Counter is a service that can tell how much work it has done, for all its clients.
type Counter interface {
	// Requests is the number of requests, in the service's own unit, that it has served
	// since it was started. What it takes to tell is counted too, one request at most.
	Requests(ctx context.Context) (uint64, error)
}

// Forgetter is a service that remembers a lock which nobody holds, and can be told not to.
type Forgetter interface {
	// Forget removes what is left of a lock that nobody holds or waits for; a held one is
	// not touched, and ErrInvalid returned. Its fences begin anew, so this is only for
	// names that nobody will use again.
	Forget(ctx context.Context, name string) error
}
