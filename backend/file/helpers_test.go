package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/internal/proc"
)

var (
	exclusive = backend.Mode{Kind: backend.Exclusive}
	shared    = backend.Mode{Kind: backend.Shared}
)

func slots(n int) backend.Mode { return backend.Mode{Kind: backend.Slots, N: n} }

// patience bounds waits for what must happen; it decides nothing when all is well.
const patience = 20 * time.Second

func newBackend(t *testing.T) *Backend {
	t.Helper()
	return New(Options{Dir: filepath.Join(t.TempDir(), "locks")})
}

func request(name string, mode backend.Mode) backend.Request {
	self, _ := proc.Get(os.Getpid())
	return backend.Request{
		Name: name, Token: uuid.NewString(), Mode: mode, TTL: 30 * time.Second,
		Owner: backend.Owner{Kind: backend.Run, Host: "here", BootID: boottime.BootID(), PID: self.PID, Start: self.Start},
	}
}

func detachedRequest(name string, mode backend.Mode, ttl time.Duration) backend.Request {
	req := request(name, mode)
	req.Detached, req.TTL, req.Owner.Kind = true, ttl, backend.Detached
	return req
}

func noWait(req backend.Request) backend.Request { req.NoWait = true; return req }

func mustAcquire(t *testing.T, b *Backend, req backend.Request) backend.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h, err := b.Acquire(ctx, req)
	if err != nil {
		t.Fatalf("acquire %v: %v", req.Mode, err)
	}
	return h
}

func mustRelease(t *testing.T, h backend.Hold) {
	t.Helper()
	if err := h.Release(context.Background(), 0); err != nil {
		t.Errorf("release: %v", err)
	}
}

func mustBeBusy(t *testing.T, b *Backend, req backend.Request) *backend.BusyError {
	t.Helper()
	h, err := b.Acquire(t.Context(), noWait(req))
	var busy *backend.BusyError
	if !errors.As(err, &busy) {
		t.Errorf("acquire %v of a busy lock: hold %v, error %v; want busy", req.Mode, h, err)
		return &backend.BusyError{}
	}
	return busy
}

// waiting starts to wait for the lock and returns once it is in line.
func waiting(t *testing.T, ctx context.Context, b *Backend, req backend.Request) <-chan result {
	t.Helper()
	inLine := make(chan struct{})
	req.Waiting = func(backend.Wait) error { close(inLine); return nil }
	done := make(chan result, 1)
	go func() {
		h, err := b.Acquire(ctx, req)
		done <- result{h, err}
	}()
	select {
	case <-inLine:
	case r := <-done:
		t.Fatalf("acquire did not wait: %v", r.err)
	case <-time.After(patience):
		t.Fatal("acquire neither waits nor returns")
	}
	return done
}

type result struct {
	hold backend.Hold
	err  error
}

func (r result) must(t *testing.T) backend.Hold {
	t.Helper()
	if r.err != nil {
		t.Fatalf("acquire: %v", r.err)
	}
	return r.hold
}

func receive[T any](t *testing.T, from <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("timed out: %s", what)
		panic("unreachable")
	}
}

func inspectOne(t *testing.T, b *Backend, name string) backend.Status {
	t.Helper()
	list, err := b.Inspect(t.Context(), name)
	if err != nil || len(list) != 1 {
		t.Fatalf("inspect %q: %v, %v", name, list, err)
	}
	return list[0]
}
