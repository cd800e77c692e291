package mysql

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dlock/dlock/backend"
)

// lookAround warns of what weakens the lock, and clears old rows away. It runs beside
// the first renewal, so that a short command pays nothing for it.
func (b *Backend) lookAround() {
	ctx, cancel := context.WithTimeout(context.Background(), tryLimit)
	defer cancel()
	// What fails here is looked at by the next one.
	_ = b.with(ctx, func(s *session) error {
		cluster, err := s.isCluster(ctx)
		if err != nil {
			return err
		}
		v, err := s.one(ctx, "SELECT CONNECTION_ID()")
		if err != nil {
			return err
		}
		switch {
		case cluster:
			b.opts.Warn(b.opts.address() + " is a node of a Galera cluster, where named locks are a node's own: " +
				"a clock that is set, and the line, count on each node alone; let all dlocks use one node")
		case uint32(v.natural(0)) != s.wire.thread:
			b.opts.Warn(b.behindProxy().Error())
		}
		return s.sweep(ctx)
	})
}

// isCluster tells whether the server is a node of a Galera cluster.
func (s *session) isCluster(ctx context.Context) (bool, error) {
	rows, err := s.query(ctx, "SHOW VARIABLES LIKE 'wsrep_on'")
	if err != nil {
		return false, err
	}
	return len(rows) > 0 && strings.EqualFold(rows[0].text(1), "ON"), nil
}

// refuseClusters refuses to lock a row where that means nothing to the other nodes.
func (s *session) refuseClusters(ctx context.Context) error {
	if s.b.single.Load() {
		return nil
	}
	cluster, err := s.isCluster(ctx)
	if err != nil || !cluster {
		s.b.single.Store(err == nil)
		return err
	}
	return &opError{msg: s.b.opts.address() + " is a node of a Galera cluster, where SELECT … FOR UPDATE locks a row on one node alone; use mode=table",
		kind: backend.ErrUnsupported, err: errShape, answered: true, final: true}
}

// behindProxy says that what has greeted us is not what answers.
func (b *Backend) behindProxy() error {
	return &opError{msg: b.opts.address() + " is a proxy that may share connections among its clients; locks are tied to a connection: name the server itself",
		kind: backend.ErrUnsupported, err: errShape, answered: true, final: true}
}

// whyLocked explains why a renewal has waited in vain: where even a row that
// is not there cannot be locked, all tables are locked, maybe by the very command that runs.
func (b *Backend) whyLocked(ctx context.Context, err error) error {
	// No row has this key, so that only a lock on the whole table is in the way.
	probe := b.with1(ctx, func(s *session) error {
		_, err := s.query(ctx, "SELECT version FROM "+table+byKey+" FOR UPDATE NOWAIT", markNS, "")
		return err
	})
	if probe == nil {
		return err
	}
	return &opError{msg: b.opts.address() + ": the table " + table + " is locked as a whole, as by FLUSH TABLES WITH READ LOCK " +
		"or mysqldump --lock-all-tables; use --single-transaction, a --ttl longer than the lock, or mode=pessimistic",
		kind: backend.ErrUnavailable, err: err, answered: true, again: true}
}

// with1 runs do in a session of its own, once.
func (b *Backend) with1(ctx context.Context, do func(*session) error) error {
	s, err := b.session(ctx)
	if err != nil {
		return err
	}
	defer func() { b.park(s) }()
	return do(s)
}

const (
	sweepAge   = 30 * 24 * time.Hour // of a row that nobody has touched
	sweepBatch = 100                 // rows at a time
)

// sweep deletes rows of locks that were not used for long. It finds them without
// locking anything, and deletes each by its key if it is still as it was found. The next
// fence of such a name is the server's time in µs, which is more than what it had.
func (s *session) sweep(ctx context.Context) error {
	rows, err := s.query(ctx, fmt.Sprintf("SELECT ns, name, version FROM %s WHERE token = '' AND version < %s AND updated_at < %s - INTERVAL %d SECOND LIMIT %d",
		table, nowMicro, now, int(sweepAge.Seconds()), sweepBatch))
	if err != nil {
		return err
	}
	for _, v := range rows {
		if _, err := s.exec(ctx, "DELETE FROM "+table+byKey+" AND version = ? AND token = ''", v.text(0), v.text(1), v.natural(2)); err != nil {
			return err
		}
	}
	return s.sweepCrashed(ctx)
}

// sweepCrashed frees the rows of holders that ended long ago without a word.
func (s *session) sweepCrashed(ctx context.Context) error {
	rows, err := s.query(ctx, fmt.Sprintf("SELECT ns, name FROM %s WHERE token <> '' AND updated_at < %s - INTERVAL %d SECOND AND expires < %s - INTERVAL %d SECOND LIMIT %d",
		table, now, int(sweepAge.Seconds()), now, int(sweepAge.Seconds()), sweepBatch))
	if err != nil {
		return err
	}
	for _, v := range rows {
		id := lockID{ns: v.text(0), name: v.text(1)}
		err := s.change(ctx, id, "", func(st *state) error { st.Expire(st.now); return nil })
		if err != nil {
			return err
		}
	}
	return nil
}
