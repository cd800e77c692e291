package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/record"
	"github.com/dlock/dlock/internal/boottime"
)

// TestSuite: a service in memory, made of package record alone, passes.
func TestSuite(t *testing.T) {
	for _, noDetached := range []string{"", "for the test"} {
		t.Run(fmt.Sprintf("no detached %q", noDetached), func(t *testing.T) {
			backendtest.Run(t, "ns", func(*testing.T) backendtest.Service {
				s := &memory{locks: map[[2]string]*record.Record{}, noDetached: noDetached}
				return backendtest.Service{Dial: func(namespace string) backend.Backend { return client{s, namespace} }}
			})
		})
	}
}

// memory is a lock service that expires leases by the clock of this process.
type memory struct {
	mu         sync.Mutex
	locks      map[[2]string]*record.Record // by namespace and name
	noDetached string
}

type client struct {
	*memory
	namespace string
}

func now() record.Time { return record.Time(time.Now().UnixMicro()) }

// change runs edit on a lock.
func (c client) change(name string, edit func(*record.Record) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := [2]string{c.namespace, name}
	if c.locks[key] == nil {
		c.locks[key] = &record.Record{}
	}
	return edit(c.locks[key])
}

var token = regexp.MustCompile(`^[0-9a-z-]{1,64}$`)

func (c client) Acquire(ctx context.Context, req backend.Request) (backend.Hold, error) {
	switch {
	case backend.CheckName(req.Name) != nil || !token.MatchString(req.Token):
		return nil, backend.ErrInvalid
	case req.Detached && c.noDetached != "":
		return nil, backend.ErrUnsupported
	}
	h := &hold{client: c, name: req.Name}
	claim := record.Claim{Token: req.Token, Mode: req.Mode, Owner: req.Owner, TTL: req.TTL, Leased: true, Seed: 1}
	if !req.NoWait {
		claim.Place = time.Hour
	}
	said := false
	for {
		sent := boottime.Now()
		var got record.Holder
		err := c.change(req.Name, func(r *record.Record) (err error) { got, err = r.Take(now(), claim); return err })
		busy, ok := errors.AsType[*backend.BusyError](err)
		if !ok {
			h.grant = backend.Grant{Token: got.Token, Fence: got.Fence, Lease: backend.Lease{Sent: sent, TTL: got.TTL, Every: got.TTL / 3}}
			return h, err
		}
		if req.NoWait {
			return nil, err
		}
		for _, b := range busy.Holders {
			if b.Tail && req.TailIsBusy {
				return nil, c.quit(req, err)
			}
		}
		if !said && req.Waiting != nil {
			if err := req.Waiting(backend.Wait{Holders: busy.Holders, Ahead: busy.Ahead}); err != nil {
				return nil, c.quit(req, err)
			}
		}
		said = true
		select { // a poll is good enough here
		case <-ctx.Done():
			return nil, c.quit(req, context.Cause(ctx))
		case <-time.After(time.Millisecond):
		}
	}
}

func (c client) quit(req backend.Request, err error) error {
	_ = c.change(req.Name, func(r *record.Record) error { r.Quit(req.Token); return nil })
	return err
}

func (c client) Attach(_ context.Context, name, token string, ttl time.Duration) (backend.Hold, error) {
	list, err := c.Inspect(context.Background(), name)
	if err != nil {
		return nil, err
	}
	for _, h := range list[0].Holders {
		switch {
		case h.Token != token || h.Tail:
		case h.Owner.Kind == backend.Run:
			return nil, backend.ErrRunning
		default:
			return &hold{client: c, name: name, ttl: ttl, grant: backend.Grant{Token: token, Fence: h.Fence}}, nil
		}
	}
	return nil, backend.ErrLost
}

func (c client) Revoke(_ context.Context, name, prefix string, immediately bool) (holder backend.Holder, err error) {
	if err := backend.CheckName(name); err != nil {
		return holder, err
	}
	err = c.change(name, func(r *record.Record) error {
		h, err := r.Revoke(now(), prefix, immediately)
		holder = h.Status(now())
		return err
	})
	return holder, err
}

func (c client) Inspect(_ context.Context, names ...string) ([]backend.Status, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []backend.Status
	if len(names) == 0 {
		for key, r := range c.locks {
			if s := r.Status(key[1], now()); key[0] == c.namespace && len(s.Holders) > 0 {
				list = append(list, s)
			}
		}
	}
	for _, name := range names {
		if err := backend.CheckName(name); err != nil {
			return nil, err
		}
		s := backend.Status{Name: name}
		if r := c.locks[[2]string{c.namespace, name}]; r != nil {
			s = r.Status(name, now())
		}
		list = append(list, s)
	}
	return list, nil
}

func (c client) Limits() backend.Limits {
	return backend.Limits{Kind: "memory", Address: "here", MinTTL: time.Second, MaxTTL: 24 * time.Hour, NoDetached: c.noDetached}
}

func (c client) Close() error { return nil }

type hold struct {
	client
	name  string
	ttl   time.Duration
	grant backend.Grant
}

func (h *hold) Grant() backend.Grant { return h.grant }

func (h *hold) Renew(context.Context) (lease backend.Lease, err error) {
	sent := boottime.Now()
	err = h.change(h.name, func(r *record.Record) error {
		got, err := r.Renew(now(), h.grant.Token, h.ttl)
		lease = backend.Lease{Sent: sent, TTL: got.TTL, Every: got.TTL / 3}
		return err
	})
	return lease, err
}

func (h *hold) Release(_ context.Context, tail time.Duration) error {
	return h.change(h.name, func(r *record.Record) error { return r.Leave(now(), h.grant.Token, tail) })
}

func (h *hold) Lost() <-chan error { return nil }

func (h *hold) KeepOpen() []*os.File { return nil }
