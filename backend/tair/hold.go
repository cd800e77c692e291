package tair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/redis"
)

// hold is a lock that we have, or a detached one that we may speak for.
type hold struct {
	b     *Backend
	keys  keys
	token string
	fence uint64
	ttl   time.Duration
	lease backend.Lease // as granted; of a detached hold that was found, unknown
	found bool          // it may have more time left than ttl
}

// Grant tells token, fence and the lease as it was granted.
func (h *hold) Grant() backend.Grant {
	return backend.Grant{Token: h.token, Fence: h.fence, Lease: h.lease}
}

// Renew extends the lease if the token still holds the lock.
func (h *hold) Renew(ctx context.Context) (backend.Lease, error) {
	sent, ttl := h.b.clock(), h.ttl
	if h.found { // CAS sets the end, and must not shorten it
		left, err := h.b.number(ctx, "PTTL", h.keys.lock)
		if err != nil {
			return backend.Lease{}, err
		}
		ttl = max(ttl, time.Duration(left)*time.Millisecond)
	}
	got, err := h.b.cas(ctx, h.keys.lock, h.token, h.token, ttl)
	if err != nil {
		return backend.Lease{}, err
	}
	if got != done {
		return backend.Lease{}, h.why(ctx)
	}
	return backend.Lease{Sent: sent, TTL: ttl, Every: h.ttl / 3}, nil
}

// why tells a hold that was revoked from one that was lost.
func (h *hold) why(ctx context.Context) error {
	v, err := h.b.view(ctx, h.keys)
	if err == nil && v.value == revokedMark+h.token {
		return backend.ErrRevoked
	}
	return backend.ErrLost
}

// Release gives the lock back. It tries until ctx ends. Once an answer went missing,
// "not held" is taken for what that try has done.
func (h *hold) Release(ctx context.Context, tail time.Duration) error {
	sure := true
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		err := h.release(ctx, tail)
		switch {
		case err == nil, errors.Is(err, backend.ErrLost) && !sure:
			return nil
		case !redis.Passing(err):
			return err
		}
		sure = sure && redis.Answered(err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

func (h *hold) release(ctx context.Context, tail time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	var got int64
	var err error
	if tail >= time.Millisecond {
		got, err = h.b.cas(ctx, h.keys.lock, h.token, tailMark+h.token, tail)
	} else {
		got, err = h.b.cad(ctx, h.keys.lock, h.token)
	}
	if err == nil && got == noMatch { // revoked: somebody wants it free, so there is no tail
		got, err = h.b.cad(ctx, h.keys.lock, revokedMark+h.token)
	}
	if err == nil && got != done {
		err = backend.ErrLost
	}
	return err
}

// Lost is nil: Tair does not tell.
func (h *hold) Lost() <-chan error { return nil }

// KeepOpen lists nothing: the lock is elsewhere.
func (h *hold) KeepOpen() []*os.File { return nil }

// Attach finds a detached hold by its token.
func (b *Backend) Attach(ctx context.Context, name, token string, ttl time.Duration) (backend.Hold, error) {
	k, err := b.keys(name)
	if err != nil {
		return nil, err
	}
	v, err := b.view(ctx, k)
	if err != nil {
		return nil, err
	}
	if token == "" || v.value != token || v.record == nil {
		return nil, backend.ErrLost
	}
	if v.record.Owner.Kind == backend.Run {
		return nil, backend.ErrRunning
	}
	if ttl == 0 {
		ttl = v.record.TTL
	}
	return &hold{b: b, keys: k, token: token, fence: v.record.Fence, ttl: ttl, found: true}, nil
}

// Revoke marks a run's hold, so that its run stops at its next renewal, and ends a
// detached one, or any with now.
func (b *Backend) Revoke(ctx context.Context, name, prefix string, now bool) (backend.Holder, error) {
	if prefix == "" {
		return backend.Holder{}, fmt.Errorf("%w: the token is empty", backend.ErrInvalid)
	}
	k, err := b.keys(name)
	if err != nil {
		return backend.Holder{}, err
	}
	v, err := b.view(ctx, k)
	if err != nil {
		return backend.Holder{}, err
	}
	holder := v.holder()
	switch {
	case v.value != "" && v.record == nil:
		return holder, fmt.Errorf("%w: another program holds this lock, and dlock does not end its hold; the key is %s", backend.ErrUnsupported, k.lock)
	case v.value == "" || !strings.HasPrefix(holder.Token, prefix):
		return holder, backend.ErrLost
	}
	got := int64(done)
	if now || holder.Tail || holder.Owner.Kind != backend.Run {
		got, err = b.cad(ctx, k.lock, v.value)
	} else if !holder.Revoked {
		holder.Revoked = true
		got, err = b.cas(ctx, k.lock, v.value, revokedMark+holder.Token, max(v.left, time.Millisecond))
	}
	if err == nil && got != done {
		err = backend.ErrLost
	}
	return holder, err
}

// view is what the keys of one lock say at one time.
type view struct {
	value  string // of the key; empty if there is none
	left   time.Duration
	record *record // of the token in the value; nil if there is none, or it is another's
	micros int64   // the server's time
	fence  uint64  // the last one
}

func (b *Backend) view(ctx context.Context, k keys) (v view, err error) {
	replies, err := b.do(ctx,
		[]any{"GET", k.lock}, []any{"PTTL", k.lock}, []any{"GET", k.owner}, []any{"HGET", k.meta, "f"}, []any{"TIME"})
	if err != nil {
		return v, err
	}
	return read(replies), nil
}

// read reads the replies; what stands in the keys may be anybody's.
func read(replies []any) (v view) {
	text := func(i int) string { s, _ := replies[i].(string); return s }
	v.value, v.left, v.micros = text(0), backend.Millis(integer(replies[1])), timeOf(replies[4])
	v.fence, _ = strconv.ParseUint(text(3), 10, 64)
	var r record
	if json.Unmarshal([]byte(text(2)), &r) == nil && r.Token != "" && v.token() == r.Token {
		v.record = &r
	}
	return v
}

// token is the one in the value.
func (v *view) token() string {
	for _, mark := range []string{tailMark, revokedMark} {
		if token, ok := strings.CutPrefix(v.value, mark); ok {
			return token
		}
	}
	return v.value
}

func (v *view) holder() backend.Holder {
	h := backend.Holder{
		Mode: backend.Mode{Kind: backend.Exclusive}, Owner: backend.Owner{Kind: backend.Foreign},
		Held: -1, Left: v.left, Leased: v.left >= 0,
	}
	if r := v.record; r != nil {
		h.Token, h.Owner, h.Fence, h.Held = r.Token, r.Owner, r.Fence, time.Duration(v.micros-r.Since)*time.Microsecond
		h.Tail, h.Revoked = strings.HasPrefix(v.value, tailMark), strings.HasPrefix(v.value, revokedMark)
	}
	return h
}

// Inspect reports on locks. Without names it lists those that were used in the last month.
func (b *Backend) Inspect(ctx context.Context, names ...string) ([]backend.Status, error) {
	listed := len(names) == 0
	if listed {
		var err error
		if names, err = b.node.Names(ctx); err != nil {
			return nil, err
		}
	}
	var list []backend.Status
	for _, name := range names {
		k, err := b.keys(name)
		if err != nil {
			return nil, err
		}
		v, err := b.view(ctx, k)
		if err != nil {
			return nil, err
		}
		s := backend.Status{Name: name, Fence: v.fence}
		if v.value != "" {
			s.Holders = append(s.Holders, v.holder())
		} else if listed {
			continue
		}
		list = append(list, s)
	}
	return list, nil
}
