package mysql

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/dlock/dlock/backend"
)

var _ backend.Checker = (*Backend)(nil)

// Check looks at the variables of the server, and of a session as dlock uses it.
func (b *Backend) Check(ctx context.Context, ttl time.Duration) (checks []backend.Check) {
	err := b.afresh(ctx, func(s *session) error {
		global, err := s.variables(ctx, "GLOBAL")
		if err != nil {
			return err
		}
		own, err := s.variables(ctx, "SESSION")
		if err != nil {
			return err
		}
		rows, err := s.one(ctx, "SELECT "+nowMicro)
		if err != nil {
			return err
		}
		checks = []backend.Check{
			writable(global), b.durable(global), galera(global), idle(own), b.patience(own, global), isolation(own), connections(global, own),
			backend.ClockCheck(time.UnixMicro(rows.number(0)), time.Now()),
		}
		return nil
	})
	if err != nil {
		checks = append(checks, backend.Found("settings", backend.Warn, "see that the server is one on its own, and no proxy", "%v", err))
	}
	return checks
}

// afresh runs do in a new session: one that held a lock had other settings.
func (b *Backend) afresh(ctx context.Context, do func(*session) error) error {
	s, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer s.close()
	return do(s)
}

// settings are variables of a server, in lower case.
type settings map[string]string

func (v settings) on(name string) bool { return v[name] == "on" || v[name] == "1" }

func (v settings) number(name string) int64 {
	n, _ := strconv.ParseInt(v[name], 10, 64) // 0 where there is none
	return n
}

// variables reads those that matter.
func (s *session) variables(ctx context.Context, scope string) (settings, error) {
	rows, err := s.query(ctx, "SHOW "+scope+" VARIABLES WHERE Variable_name IN ('read_only', 'super_read_only', 'innodb_read_only', "+
		"'innodb_flush_log_at_trx_commit', 'wsrep_on', 'wait_timeout', 'innodb_lock_wait_timeout', 'lock_wait_timeout', "+
		"'tx_isolation', 'transaction_isolation', 'max_connections', 'max_user_connections', 'idle_transaction_timeout', "+
		"'idle_readonly_transaction_timeout', 'idle_write_transaction_timeout')")
	if err != nil {
		return nil, err
	}
	v := settings{}
	for _, r := range rows {
		v[strings.ToLower(r.text(0))] = strings.ToLower(r.text(1))
	}
	return v, nil
}

func writable(global settings) backend.Check {
	const check = "read_only"
	for _, name := range []string{"innodb_read_only", "super_read_only", "read_only"} {
		if global.on(name) {
			return backend.Found(check, backend.Fail, "name the primary", "%s is on, as on a replica", name)
		}
	}
	return backend.Good(check, "off")
}

func (b *Backend) durable(global settings) backend.Check {
	const check = "durability"
	if n := global["innodb_flush_log_at_trx_commit"]; n != "1" {
		return backend.Found(check, backend.Warn, "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
			"innodb_flush_log_at_trx_commit is %s: a crash of the server may lose a lock that was granted", n)
	}
	return backend.Good(check, "innodb_flush_log_at_trx_commit is 1")
}

func galera(global settings) backend.Check {
	const check = "galera"
	if global.on("wsrep_on") {
		return backend.Found(check, backend.Warn, "let all dlocks use one node, and not mode=pessimistic",
			"a node of a cluster, where named locks are a node's own")
	}
	return backend.Good(check, "no node of a cluster")
}

// idle looks at how long our connections may say nothing. They choose that for
// themselves; something in between may not let them.
func idle(own settings) backend.Check {
	const check = "wait_timeout"
	if want := int64(idleLimit.Seconds()); own.number(check) != want {
		return backend.Found(check, backend.Fail, "name the server itself", "a session has %s s although it asked for %d: something in between changes it", own[check], want)
	}
	return backend.Good(check, "each connection chooses its own")
}

// patience looks at what ends a transaction, or a wait in it, early.
func (b *Backend) patience(own, global settings) backend.Check {
	const check = "lock wait"
	for _, name := range []string{"innodb_lock_wait_timeout", "lock_wait_timeout"} {
		if own.number(name) != 1 {
			return backend.Found(check, backend.Fail, "name the server itself", "a session has %s = %s although it asked for 1: something in between changes it", name, own[name])
		}
	}
	if b.opts.Mode == Pessimistic {
		for _, name := range []string{"idle_transaction_timeout", "idle_readonly_transaction_timeout", "idle_write_transaction_timeout"} {
			if n := own.number(name); n != 0 {
				return backend.Found(check, backend.Warn, "SET GLOBAL "+name+" = 0, or use mode=table",
					"%s is %d s: the server may end the transaction that holds a lock", name, n)
			}
		}
	}
	return backend.Good(check, "each connection chooses its own; the server's is %s s", global["innodb_lock_wait_timeout"])
}

func isolation(own settings) backend.Check {
	const check = "isolation"
	level := own["transaction_isolation"]
	if level == "" {
		level = own["tx_isolation"]
	}
	if level != "read-committed" {
		return backend.Found(check, backend.Fail, "name the server itself", "a session has %s although it asked for READ-COMMITTED: something in between changes it", level)
	}
	return backend.Good(check, "each connection chooses READ-COMMITTED")
}

// fewConnections is how many are soon used up: each waiter needs one, and each holder.
const fewConnections = 50

func connections(global, own settings) backend.Check {
	const check = "connections"
	n := global.number("max_connections")
	if user := own.number("max_user_connections"); user > 0 && user < n {
		n = user
	}
	if n < fewConnections {
		return backend.Found(check, backend.Warn, "raise max_connections or max_user_connections", "at most %d: each holder and each waiter needs one", n)
	}
	return backend.Good(check, "at most %d; each holder and each waiter needs one", n)
}
