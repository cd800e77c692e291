package mysql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/mysqltest"
)

// The tests of this file show that the known faults of locking with a database are
// absent, each by its name.

// TestNoErrorOfAFreshDatabase: 50 contenders make the table themselves and wait in line.
// All get in, one at a time, and none sees a deadlock (1213), a lock wait timeout (1205)
// or a busy error.
func TestNoErrorOfAFreshDatabase(t *testing.T) {
	t.Parallel()
	rounds := 5
	if os.Getenv("DLOCK_FULL") != "" {
		rounds = 20
	}
	server := mysqltest.Start(t, "--innodb-lock-wait-timeout=1")
	for _, options := range modes {
		for round := range rounds {
			db := fmt.Sprintf("d%d", round)
			server.Do("CREATE OR REPLACE DATABASE " + db)
			var inside, entered atomic.Int32
			var all sync.WaitGroup
			for range 50 {
				b := use(t, server.URL(db)+"?"+options)
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), backendtest.Patience)
					defer cancel()
					h, err := b.Acquire(ctx, exclusive("j"))
					if err != nil {
						t.Errorf("%s: %v", options, err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two holders")
					}
					entered.Add(1)
					inside.Add(-1)
					backendtest.MustRelease(t, h)
				})
			}
			all.Wait()
			if n := entered.Load(); n != 50 {
				t.Fatalf("%s: %d of 50 got in", options, n)
			}
		}
	}
	conn := server.Conn("d0")
	if key := conn.One("SELECT GROUP_CONCAT(COLUMN_NAME ORDER BY SEQ_IN_INDEX) FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = 'd0' AND INDEX_NAME = 'PRIMARY'"); key != "ns,name" {
		t.Errorf("the key is %q", key)
	}
}

// TestNoRowWithoutExpiry: connections are killed while contenders take locks. Every row is
// free, or has an end that is not far.
func TestNoRowWithoutExpiry(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	conn := server.Conn("d")
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 8 {
		b := use(t, server.URL("d")+"?"+modes[i%3])
		all.Go(func() {
			for ctx.Err() == nil {
				h, err := b.Acquire(ctx, leaseOf(fmt.Sprint("j", i%4), backendtest.Exclusive, time.Second))
				if err == nil && h.Grant().Fence%2 == 0 {
					err = h.Release(ctx, 0)
				} else if err == nil {
					crash(h)
				}
				if err != nil && ctx.Err() == nil && !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrLost) {
					t.Errorf("%v", err)
				}
			}
		})
	}
	for range 300 {
		for _, id := range conn.Rows("SELECT ID FROM information_schema.PROCESSLIST WHERE DB = 'd' AND USER = 'dlock' AND ID <> CONNECTION_ID() ORDER BY RAND() LIMIT 1") {
			_ = conn.Try("KILL " + id[0]) // it may be gone
		}
		time.Sleep(3 * time.Millisecond)
	}
	cancel()
	all.Wait()
	if n := conn.Number("SELECT COUNT(*) FROM dlock_lock WHERE token <> '' AND expires > UTC_TIMESTAMP(6) + INTERVAL 1 SECOND"); n != 0 {
		t.Errorf("%d rows end too late", n)
	}
	for i := range 4 {
		backendtest.MustRelease(t, backendtest.MustAcquire(t, use(t, server.URL("d")), exclusive(fmt.Sprint("j", i))))
	}
}

// TestBusyIsWaitedFor: a lock that is held is no error for who is willing to wait, also
// with the server's shortest lock waits.
func TestBusyIsWaitedFor(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, "--innodb-lock-wait-timeout=1", "--lock-wait-timeout=1", "--wait-timeout=3", "--interactive-timeout=3")
	for _, options := range modes {
		h := keep(t, use(t, server.URL("d")+"?"+options), leaseOf("j", backendtest.Exclusive, 10*time.Second))
		w := backendtest.Wait(t, use(t, server.URL("d")+"?"+options), exclusive("j"))
		time.Sleep(4 * time.Second) // longer than all of them
		w.StillWaits(t)
		h.release(t)
		backendtest.MustRelease(t, w.Hold(t))
	}
}

// TestNoUpdateIsLost: between the read and the write of one, another one writes. The
// write of the first does nothing.
func TestNoUpdateIsLost(t *testing.T) {
	server := mysqltest.Start(t)
	for _, options := range []string{"mode=table", "mode=optimistic&cas=updated_at"} {
		b := use(t, server.URL("d")+"?"+options)
		name := options
		id, err := b.lock(name)
		if err != nil {
			t.Fatal(err)
		}
		first := backendtest.MustAcquire(t, b, backendtest.Request(name, backendtest.Shared))
		var one, two *session
		for _, s := range []**session{&one, &two} {
			if *s, err = b.connect(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer (*s).close()
		}
		early, err := one.read(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		second := backendtest.MustAcquire(t, b, backendtest.Request(name, backendtest.Shared))
		if written, err := one.write(t.Context(), id, early); err != nil || written {
			t.Errorf("%s: an early state was written over a later one: %v, %v", options, written, err)
		}
		if n := len(backendtest.InspectOne(t, b, name).Holders); n != 2 {
			t.Errorf("%d holders", n)
		}
		// The same in a crowd.
		var all sync.WaitGroup
		for range 8 {
			c := use(t, server.URL("d")+"?"+options)
			all.Go(func() {
				for range 5 {
					h := backendtest.MustAcquire(t, c, backendtest.Request(name, backendtest.Shared))
					if _, err := h.Renew(t.Context()); err != nil {
						t.Errorf("%v", err)
					}
					backendtest.MustRelease(t, h)
				}
			})
		}
		all.Wait()
		if n := len(backendtest.InspectOne(t, b, name).Holders); n != 2 {
			t.Errorf("%d holders after the crowd", n)
		}
		backendtest.MustRelease(t, first)
		backendtest.MustRelease(t, second)
	}
}

// TestNoWholeTableIsLocked: while one lock is held, taken and renewed by a transaction,
// all others are free to come and go, also names beside it that are not there yet.
func TestNoWholeTableIsLocked(t *testing.T) {
	server := mysqltest.Start(t)
	for _, options := range modes {
		for _, name := range []string{"a", "m", "z"} { // rows before, at and after the one
			backendtest.MustRelease(t, backendtest.MustAcquire(t, use(t, server.URL("d")), exclusive(name)))
		}
		h := backendtest.MustAcquire(t, use(t, server.URL("d")+"?mode=pessimistic"), exclusive("m"))
		b := use(t, server.URL("d")+"?"+options)
		for _, name := range []string{"a", "l", "ma", "n", "z", "zz"} {
			o := backendtest.MustAcquire(t, b, backendtest.NoWait(exclusive(name+options)))
			if _, err := o.Renew(t.Context()); err != nil {
				t.Error(err)
			}
			backendtest.MustRelease(t, o)
		}
		backendtest.MustRelease(t, h)
	}
	conn := server.Conn("d")
	plan := conn.Rows("EXPLAIN SELECT token FROM dlock_lock WHERE ns = 'dlock' AND name = 'm' FOR UPDATE")
	if len(plan) != 1 || plan[0][3] != "const" || plan[0][5] != "PRIMARY" {
		t.Errorf("the row is found by %q", plan)
	}
}

// TestNoTransactionIsLeftOpen: only a pessimistic hold has one, and no longer than it
// lasts. Nor do contenders that were refused leave connections.
func TestNoTransactionIsLeftOpen(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	conn := server.Conn("d")
	open := func() int {
		time.Sleep(150 * time.Millisecond) // the server shows the same again to who asks sooner
		return conn.Number("SELECT COUNT(*) FROM information_schema.INNODB_TRX")
	}
	others := func() int {
		return conn.Number("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = 'dlock' AND ID <> CONNECTION_ID()")
	}
	for _, options := range modes {
		want := 0
		if options == "mode=pessimistic" {
			want = 1
		}
		b := use(t, server.URL("d")+"?"+options)
		h := backendtest.MustAcquire(t, b, exclusive("j"))
		if _, err := h.Renew(t.Context()); err != nil {
			t.Error(err)
		}
		for range 25 {
			c := New(b.opts)
			backendtest.MustBeBusy(t, c, exclusive("j"))
			c.Close()
		}
		backendtest.Eventually(t, options+": only the holder's transaction is open", func() bool { return open() == want })
		backendtest.MustRelease(t, h)
		backendtest.Eventually(t, options+": no transaction is open", func() bool { return open() == 0 })
		b.Close()
		backendtest.Eventually(t, options+": no connection is left", func() bool { return others() == 0 })
	}
}

// TestNoDeadlock: two who want each other's locks wait as long as they want to, and are
// told no more than that it is busy. No transaction is ever the victim of another.
func TestNoDeadlock(t *testing.T) {
	server := mysqltest.Start(t)
	for _, options := range modes {
		address := server.URL("d") + "?" + options
		a := backendtest.MustAcquire(t, use(t, address), exclusive("a"))
		b := backendtest.MustAcquire(t, use(t, address), exclusive("b"))
		enough := errors.New("enough")
		wantB := backendtest.Wait(t, use(t, address), exclusive("b"))
		wantA := backendtest.Wait(t, use(t, address), exclusive("a"))
		time.Sleep(200 * time.Millisecond)
		for _, w := range []*backendtest.Waiter{wantA, wantB} {
			w.StillWaits(t)
			w.Cancel(enough)
			if err := w.Err(t); !errors.Is(err, enough) || strings.Contains(err.Error(), "eadlock") {
				t.Errorf("%v", err)
			}
		}
		backendtest.MustRelease(t, a)
		backendtest.MustRelease(t, b)
	}
	if n := server.Conn("d").One("SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_DEADLOCKS'"); n != "0" {
		t.Errorf("%s deadlocks", n)
	}
}

// TestThreeAnswersOfAWait: NULL is an error, 0 is to look again, only 1 is the lock.
func TestThreeAnswersOfAWait(t *testing.T) {
	server := mysqltest.Start(t)
	b := use(t, server.URL("d"))
	s, err := b.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	c := &contender{b: b, s: s}
	for answer, want := range map[string]error{"1": nil, "0": errNotYet, "NULL": backend.ErrUnavailable} {
		if err := c.block(t.Context(), "SELECT IF(? = ?, "+answer+", "+answer+")", "x", 1); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", answer, err, want)
		}
	}
}

// TestOddServers: no setting of a server changes what a lock is.
func TestOddServers(t *testing.T) {
	for what, args := range map[string][]string{
		"non-strict":          {"--sql-mode="},
		"simultaneous":        {"--sql-mode=SIMULTANEOUS_ASSIGNMENT,NO_BACKSLASH_ESCAPES,ANSI_QUOTES,PIPES_AS_CONCAT"},
		"short waits":         {"--wait-timeout=3", "--innodb-lock-wait-timeout=1"},
		"another zone":        {"--default-time-zone=+05:45"},
		"serializable":        {"--transaction-isolation=SERIALIZABLE"},
		"autocommit off":      {"--autocommit=0"},
		"chained commits":     {"--completion-type=CHAIN"},
		"a row binlog":        {"--log-bin=b", "--binlog-format=ROW"},
		"a mixed binlog":      {"--log-bin=b", "--binlog-format=MIXED"},
		"another character":   {"--character-set-server=latin1", "--collation-server=latin1_swedish_ci"},
		"statements time out": {"--max-statement-time=0.5"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := mysqltest.Start(t, args...)
			for _, options := range modes {
				address := server.URL("d") + "?" + options
				for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Slots(1)} {
					request := func() backend.Request { return leaseOf("jób \\'"+string(mode.Kind), mode, 10*time.Second) }
					h := backendtest.MustAcquire(t, use(t, address), request())
					w := backendtest.Wait(t, use(t, address), request())
					backendtest.MustBeBusy(t, use(t, address), request())
					time.Sleep(600 * time.Millisecond)
					if _, err := h.Renew(t.Context()); err != nil {
						t.Errorf("%s: %v", options, err)
					}
					backendtest.MustRelease(t, h)
					next := w.Hold(t)
					if next.Grant().Fence <= h.Grant().Fence {
						t.Errorf("%s: fence %d after %d", options, next.Grant().Fence, h.Grant().Fence)
					}
					backendtest.MustRelease(t, next)
				}
			}
		})
	}
}

// TestModesExcludeEachOther: all modes, on one name.
func TestModesExcludeEachOther(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	for _, held := range modes {
		for _, wanted := range modes {
			h := backendtest.MustAcquire(t, use(t, server.URL("d")+"?"+held), exclusive("j"))
			b := use(t, server.URL("d")+"?"+wanted)
			backendtest.MustBeBusy(t, b, exclusive("j"))
			w := backendtest.Wait(t, b, exclusive("j"))
			backendtest.MustRelease(t, h)
			next := w.Hold(t)
			if next.Grant().Fence <= h.Grant().Fence {
				t.Errorf("%s after %s: fence %d after %d", wanted, held, next.Grant().Fence, h.Grant().Fence)
			}
			backendtest.MustRelease(t, next)
		}
	}
}

// TestPlainSQL: a row that somebody else has taken, or locked, keeps dlock out; a row that
// dlock has keeps out who looks at the token.
func TestPlainSQL(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	conn := server.Conn("d")
	for _, options := range modes {
		b := use(t, server.URL("d")+"?"+options)
		backendtest.MustRelease(t, backendtest.MustAcquire(t, b, exclusive("j")))
		conn.Do("UPDATE dlock_lock SET token = 'me', fence = version + 1, version = version + 1, since = UTC_TIMESTAMP(6), " +
			"expires = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR, ttl_us = 3600000000, updated_at = UTC_TIMESTAMP(6) WHERE ns = 'dlock' AND name = 'j' AND token = ''")
		busy := backendtest.MustBeBusy(t, b, exclusive("j"))
		if len(busy.Holders) != 1 || busy.Holders[0].Owner.Kind != backend.Foreign || busy.Holders[0].Left < 50*time.Minute {
			t.Errorf("%s: held by %+v", options, busy.Holders)
		}
		if _, err := b.Revoke(t.Context(), "j", "me", true); !errors.Is(err, backend.ErrUnsupported) {
			t.Errorf("%s: revoke: %v", options, err)
		}
		w := backendtest.Wait(t, b, exclusive("j"))
		conn.Do("UPDATE dlock_lock SET token = '', version = version + 1 WHERE ns = 'dlock' AND name = 'j' AND token = 'me'")
		backendtest.MustRelease(t, w.Hold(t))

		conn.Do("START TRANSACTION")
		conn.Do("SELECT * FROM dlock_lock WHERE ns = 'dlock' AND name = 'j' FOR UPDATE")
		if busy := backendtest.MustBeBusy(t, b, exclusive("j")); len(busy.Holders) != 1 || busy.Holders[0].Owner.Kind != backend.Foreign {
			t.Errorf("%s: locked by %+v", options, busy.Holders)
		}
		late := backendtest.Acquire(t, b, exclusive("j"))
		time.Sleep(1500 * time.Millisecond) // longer than a lock wait
		late.StillWaits(t)
		conn.Do("COMMIT")
		backendtest.MustRelease(t, late.Hold(t))
	}
}
