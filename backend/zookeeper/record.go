package zookeeper

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
)

// record is what the node of a contender of ours holds.
type record struct {
	Token string        `json:"token"`
	Owner backend.Owner `json:"owner"`

	TTL   int64  `json:"ttl_ms"`             // session timeout as granted; the lease of what has no process
	Until int64  `json:"until_ms,omitempty"` // the lease lasts until then at least, by the clock of the node's times
	Since int64  `json:"since_ms,omitempty"` // when it got in, by that clock; zero: when the node was last written
	Fence uint64 `json:"fence,omitempty"`    // of what is no longer the node that once got in line

	Held    bool `json:"held,omitempty"` // it got in after a wait
	Revoked bool `json:"revoked,omitempty"`
}

func (r record) encode() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers can be marshalled
	}
	return text
}

// entry is a node as it was read.
type entry struct {
	record
	stat zk.Stat
	bad  bool // the record cannot be read
}

// read reads a node, whoever made it.
func (b *Backend) read(ctx context.Context, s *session, path string) (entry, error) {
	return call(ctx, s, func(c *zk.Conn) (entry, error) {
		data, stat, err := c.Get(path)
		return decode(data, stat, err)
	})
}

// readAndWatch reads a node, and wakes the session's listener when the node changes or
// goes away.
func (b *Backend) readAndWatch(ctx context.Context, s *session, path string) (entry, <-chan zk.Event, error) {
	var events <-chan zk.Event
	e, err := watch(ctx, s, path, func(c *zk.Conn) (watchedEntry, error) {
		data, stat, events, err := c.GetW(path)
		e, err := decode(data, stat, err)
		return watchedEntry{e, events}, err
	})
	if err == nil {
		events = e.events
	}
	return e.entry, events, err
}

type watchedEntry struct {
	entry
	events <-chan zk.Event
}

// decode reads what may be anybody's; what cannot be read leaves fields unknown.
func decode(data []byte, stat *zk.Stat, err error) (entry, error) {
	if err != nil {
		return entry{}, err
	}
	e := entry{stat: *stat}
	if json.Unmarshal(data, &e.record) != nil {
		e.record, e.bad = record{}, true
	}
	return e, nil
}

// fence is the number of the transaction with which the contender got in line.
func (e entry) fence() uint64 {
	if e.Fence != 0 {
		return e.Fence
	}
	return uint64(e.stat.Czxid)
}

// since is when it got in, by the server's clock.
func (e entry) since() int64 {
	switch {
	case e.Since != 0:
		return e.Since
	case e.Held:
		return e.stat.Mtime
	}
	return e.stat.Ctime
}

// lasts is how long the lease lasts from the node's last change.
func (e entry) lasts() time.Duration {
	return max(backend.Millis(e.TTL), elapsed(e.Until, e.stat.Mtime))
}

// epoch is the reign of the leader that made a change: within one, all of a node's
// times are of one clock.
func epoch(zxid int64) int64 { return zxid >> 32 }

// elapsed is how long ago a time was; not below zero, whatever the clocks say.
func elapsed(now, then int64) time.Duration {
	if now <= then {
		return 0
	}
	if now-then < 0 { // too long for a number
		return backend.Millis(math.MaxInt64)
	}
	return backend.Millis(now - then)
}
