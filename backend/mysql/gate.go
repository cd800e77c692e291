package mysql

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
)

// lockID names one lock: its row, and its door.
type lockID struct {
	ns, name string
	door     string
}

// lock names a lock. Names of doors are of the whole server, at most 64 characters, and
// in MySQL the same in small and large letters.
func (b *Backend) lock(name string) (lockID, error) {
	if err := backend.CheckName(name); err != nil {
		return lockID{}, err
	}
	h := sha256.Sum256([]byte(b.opts.Database + "\x00" + b.opts.Namespace + "\x00" + name))
	return lockID{ns: b.opts.Namespace, name: name, door: "dlock." + hex.EncodeToString(h[:20])}, nil
}

// gate names the gate of a token; those of foreign programs have none.
func gate(token string) string {
	if len(token) > 40 {
		return "dlock/"
	}
	return "dlock/" + token
}

// enter is the part of a statement that gets a named lock if it is free or ours: 1, or 0.
// Getting it twice would need giving it back twice.
const enter = "IF(IS_USED_LOCK(?) <=> CONNECTION_ID(), 1, GET_LOCK(?, 0))"

// judge looks at holds that the clock alone does not decide. One whose time is over but
// whose gate is held is alive: the server's clock was set forward. One that ends with
// its connection and whose gate is free has lost it: it is over a TTL from now, since
// its command may need that long to end (settle). None may have more left than its
// own TTL: the clock was set back. Self is the token whose gate may be our own.
func (s *session) judge(ctx context.Context, st *state, self string) error {
	var doubtful []*record.Holder
	for i := range st.Holders {
		h := &st.Holders[i]
		pinned := h.Expires == 0
		if !pinned && h.TTL > 0 && h.Expires > st.now.Add(h.TTL) {
			h.Expires, st.edited = st.now.Add(h.TTL), true
		}
		if over := h.Expires <= st.now; (over || pinned) && h.Owner.Kind == backend.Run && !h.Tail {
			doubtful = append(doubtful, h)
		}
	}
	if len(doubtful) == 0 {
		return nil
	}
	alive, err := s.alive(ctx, doubtful, self)
	if err != nil {
		return err
	}
	for i, h := range doubtful {
		switch pinned := h.Expires == 0; {
		case pinned && !alive[i]:
			h.Expires, st.edited = st.now.Add(h.TTL), true
			st.settle = append(st.settle, *h)
		case !pinned && alive[i]:
			h.Expires = st.now.Add(time.Second)
		}
	}
	return nil
}

// alive tells whose gates are held, by others or by the holder self. Ours may be the gate
// of a dead one that we waited for.
func (s *session) alive(ctx context.Context, holders []*record.Holder, self string) ([]bool, error) {
	args := make([]any, len(holders))
	for i, h := range holders {
		args[i] = gate(h.Token)
	}
	v, err := s.one(ctx, "SELECT CONNECTION_ID()"+strings.Repeat(", IS_USED_LOCK(?)", len(args)), args...)
	if err != nil {
		return nil, err
	}
	list := make([]bool, len(holders))
	for i, h := range holders {
		list[i] = !v.null(i+1) && (h.Token == self || v.text(i+1) != v.text(0))
	}
	return list, nil
}

// kill ends a connection of the server, or with "QUERY" only what it does.
func (s *session) kill(ctx context.Context, what string, thread uint64) error {
	_, err := s.exec(ctx, "KILL "+what+" ?", thread)
	if number(err) == noSuchThread {
		return nil
	}
	return err
}

// awaitGone waits until the server has ended a connection and given up its locks.
func (s *session) awaitGone(ctx context.Context, thread uint64) error {
	for {
		v, err := s.one(ctx, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = ?", thread)
		if err != nil {
			return err
		}
		if v.number(0) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(backend.ErrUnavailable, context.Cause(ctx))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// evict ends the connection of a holder, and with it its gate and door.
func (s *session) evict(ctx context.Context, token string) error {
	v, err := s.one(ctx, "SELECT IS_USED_LOCK(?)", gate(token))
	if err != nil || v.null(0) {
		return err
	}
	if err := s.kill(ctx, "CONNECTION", v.natural(0)); err != nil {
		return err
	}
	return s.awaitGone(ctx, v.natural(0))
}
