package backendtest

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
)

// The modes without a number.
var (
	Exclusive = backend.Mode{Kind: backend.Exclusive}
	Shared    = backend.Mode{Kind: backend.Shared}
)

// Slots is the mode with at most n holders.
func Slots(n int) backend.Mode { return backend.Mode{Kind: backend.Slots, N: n} }

// Patience bounds waits for what must happen; it decides nothing when all is well.
const Patience = time.Minute

// Request is a wish of this process to hold a lock as a run does.
func Request(name string, mode backend.Mode) backend.Request {
	self, _ := proc.Get(os.Getpid())
	return backend.Request{
		Name: name, Token: uuid.NewString(), Mode: mode, TTL: 30 * time.Second,
		Owner: backend.Owner{Kind: backend.Run, Host: "here", BootID: boottime.BootID(), PID: self.PID, Start: self.Start},
	}
}

// Detached makes req one for a hold that outlives its process, for ttl.
func Detached(req backend.Request, ttl time.Duration) backend.Request {
	req.Detached, req.TTL, req.Owner.Kind = true, ttl, backend.Detached
	return req
}

// NoWait makes req one that fails instead of waiting.
func NoWait(req backend.Request) backend.Request { req.NoWait = true; return req }

// MustAcquire takes the lock, and waits for it with Patience unless req does not.
func MustAcquire(t testing.TB, b backend.Backend, req backend.Request) backend.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	h, err := b.Acquire(ctx, req)
	if err != nil {
		t.Fatalf("acquire %q, %v: %v", req.Name, req.Mode, err)
	}
	return h
}

// MustRelease releases without a tail.
func MustRelease(t testing.TB, h backend.Hold) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	if err := h.Release(ctx, 0); err != nil {
		t.Errorf("release: %v", err)
	}
}

// MustBeBusy asks without waiting for a lock that somebody else has.
func MustBeBusy(t testing.TB, b backend.Backend, req backend.Request) *backend.BusyError {
	t.Helper()
	h, err := b.Acquire(t.Context(), NoWait(req))
	busy, ok := errors.AsType[*backend.BusyError](err)
	if !ok {
		t.Fatalf("acquire %q, %v: hold %v, error %v; want busy", req.Name, req.Mode, h, err)
	}
	return busy
}

// mustBe checks which error it is.
func mustBe(t testing.TB, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// Waiter is a contender that waits for a lock.
type Waiter struct {
	cancel context.CancelCauseFunc
	done   chan result
}

type result struct {
	hold backend.Hold
	err  error
}

// Wait starts to wait for the lock and returns once the wait has begun. The wait
// ends with the test.
func Wait(t testing.TB, b backend.Backend, req backend.Request) *Waiter {
	t.Helper()
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	req.Waiting = func(backend.Wait) error { begin(); return nil }
	w := Acquire(t, b, req)
	select {
	case <-begun:
	case r := <-w.done:
		t.Fatalf("acquire %q, %v: hold %v, error %v; want a wait", req.Name, req.Mode, r.hold, r.err)
	case <-time.After(Patience):
		t.Fatalf("acquire %q, %v: neither waits nor returns", req.Name, req.Mode)
	}
	return w
}

// Acquire asks for the lock in the background, until it has an answer or the test ends.
func Acquire(t testing.TB, b backend.Backend, req backend.Request) *Waiter {
	ctx, cancel := context.WithCancelCause(t.Context())
	w := &Waiter{cancel, make(chan result, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		h, err := b.Acquire(ctx, req)
		w.done <- result{h, err}
	}()
	t.Cleanup(func() { // before the client is closed
		cancel(nil)
		<-ended
	})
	return w
}

// Cancel ends the wait for a cause.
func (w *Waiter) Cancel(cause error) { w.cancel(cause) }

// Result waits for the end of a wait that may have either outcome.
func (w *Waiter) Result(t testing.TB) (backend.Hold, error) {
	t.Helper()
	r := Receive(t, w.done, "the end of the wait")
	return r.hold, r.err
}

// Err waits for the end of a wait that must fail.
func (w *Waiter) Err(t testing.TB) error {
	t.Helper()
	r := Receive(t, w.done, "the end of the wait")
	if r.err == nil {
		t.Fatal("the waiter got the lock")
	}
	return r.err
}

// Hold waits for the waiter's turn.
func (w *Waiter) Hold(t testing.TB) backend.Hold {
	t.Helper()
	r := Receive(t, w.done, "the waiter's turn")
	if r.err != nil {
		t.Fatalf("waiter: %v", r.err)
	}
	return r.hold
}

// StillWaits fails if the waiter has an answer by now.
func (w *Waiter) StillWaits(t testing.TB) {
	t.Helper()
	select {
	case r := <-w.done:
		t.Fatalf("waiter: hold %v, error %v; want it to wait", r.hold, r.err)
	default:
	}
}

// Receive waits for a value with Patience.
func Receive[T any](t testing.TB, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Patience):
		t.Fatalf("timed out: %s", what)
		panic("unreachable")
	}
}

// Eventually waits with Patience until is is true.
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out: %s", what)
		}
	}
}

// InspectOne inspects one lock, whose holders must be known.
func InspectOne(t testing.TB, b backend.Backend, name string) backend.Status {
	t.Helper()
	list, err := b.Inspect(t.Context(), name)
	if err != nil || len(list) != 1 || list[0].Name != name || list[0].Err != nil {
		t.Fatalf("inspect %q: %+v, %v", name, list, err)
	}
	return list[0]
}
