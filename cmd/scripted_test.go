package cmd

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

// scripted is a lock service that grants everything, and whose renewals answer what
// the test has put into a directory: "hang", "lost" and "echo" are files there. It writes the
// deadline of each lease that it granted into "deadline".
type scripted struct{ dir string }

func openScripted(u *url.URL, _ setting) (backend.Backend, error) { return &scripted{u.Path}, nil }

func (s *scripted) Acquire(_ context.Context, req backend.Request) (backend.Hold, error) {
	h := &scriptedHold{scripted: s, req: req}
	lease, err := h.grant()
	h.lease = lease
	return h, err
}

func (s *scripted) Attach(context.Context, string, string, time.Duration) (backend.Hold, error) {
	return nil, backend.ErrLost
}

func (s *scripted) Revoke(context.Context, string, string, bool) (backend.Holder, error) {
	return backend.Holder{}, backend.ErrLost
}

func (s *scripted) Inspect(context.Context, ...string) ([]backend.Status, error) { return nil, nil }

func (s *scripted) Limits() backend.Limits {
	return backend.Limits{Kind: "scripted", Address: "scripted://" + s.dir, MinTTL: time.Second, MaxTTL: time.Hour}
}

func (s *scripted) Close() error { return nil }

func (s *scripted) says(what string) bool {
	_, err := os.Stat(filepath.Join(s.dir, what))
	return err == nil
}

type scriptedHold struct {
	*scripted
	req   backend.Request
	lease backend.Lease
}

func (h *scriptedHold) grant() (backend.Lease, error) {
	lease := backend.Lease{Sent: boottime.Now(), TTL: h.req.TTL, Every: h.req.TTL / 3}
	temp := filepath.Join(h.dir, "deadline.new")
	err := os.WriteFile(temp, []byte(time.Duration(lease.Deadline()).String()), 0o600)
	return lease, errors.Join(err, os.Rename(temp, filepath.Join(h.dir, "deadline")))
}

func (h *scriptedHold) Grant() backend.Grant {
	return backend.Grant{Token: h.req.Token, Fence: 1, Lease: h.lease}
}

func (h *scriptedHold) Renew(ctx context.Context) (backend.Lease, error) {
	switch {
	case h.says("hang"):
		<-ctx.Done()
		return backend.Lease{}, context.Cause(ctx)
	case h.says("lost"):
		return backend.Lease{}, backend.ErrLost
	}
	return h.grant()
}

func (h *scriptedHold) Release(ctx context.Context, _ time.Duration) error {
	if h.says("hang") {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if h.says("echo") { // of the signal that has ended the command
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return os.WriteFile(filepath.Join(h.dir, "released"), nil, 0o600)
}

func (h *scriptedHold) Lost() <-chan error   { return nil }
func (h *scriptedHold) KeepOpen() []*os.File { return nil }
