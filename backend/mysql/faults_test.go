package mysql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/mysqltest"
	"github.com/dlock/dlock/backend/backendtest/relay"
	"github.com/dlock/dlock/internal/boottime"
	"github.com/dlock/dlock/renew"
)

// site is a server, a relay before it, and locks that are kept through the relay.
type site struct {
	*testing.T
	server *mysqltest.Server
	relay  *relay.Relay
	kept   []*kept
}

func (s *site) renew() {
	s.Helper()
	for _, k := range s.kept {
		k.renews(s.T)
	}
}

func (s *site) fail() {
	s.Helper()
	for _, k := range s.kept {
		k.fails(s.T)
	}
}

// hang is how long a lease of keptTTL survives without an answer: 4 s of 15 s.
const keptTTL, hang = 6 * time.Second, 1500 * time.Millisecond

// passingFaults are what a lease outlives.
var passingFaults = map[string]func(*site){
	"hang":         func(s *site) { s.relay.Hole(); time.Sleep(hang); s.relay.Pass() },
	"late replies": func(s *site) { s.relay.HoldReplies(); time.Sleep(hang); s.relay.Pass() },
	"cut three times in a row": func(s *site) {
		for range 3 {
			s.relay.Cut()
			s.renew()
		}
	},
	"cut within a request": func(s *site) { s.relay.HoldReplies(); time.Sleep(hang); s.relay.Cut() },
	"delay":                func(s *site) { s.relay.Delay(100 * time.Millisecond); s.renew(); s.relay.Pass() },
	"refused":              func(s *site) { s.relay.Refuse(); s.fail(); s.relay.Pass() },
	"server stopped":       func(s *site) { s.server.Stop(); time.Sleep(hang); s.server.Cont() },
	"restart":              func(s *site) { s.server.Restart() },
	"read-only for a while": func(s *site) {
		s.server.Do("SET GLOBAL read_only = 1, GLOBAL innodb_lock_wait_timeout = 1", "REVOKE SUPER, READ ONLY ADMIN ON *.* FROM dlock@'%'")
		s.relay.Cut() // new connections have no such right
		s.fail()
		s.server.RootConn().Do("SET GLOBAL read_only = 0")
	},
	"a foreign row lock": func(s *site) {
		c := s.server.Conn("d")
		c.Do("START TRANSACTION")
		c.Do("SELECT * FROM dlock_lock FOR UPDATE")
		s.fail()
		c.Do("ROLLBACK")
	},
}

// TestLeaseOutlivesPassingFaults: table and optimistic holds go on over a new connection.
func TestLeaseOutlivesPassingFaults(t *testing.T) {
	for what, fault := range passingFaults {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := &site{T: t, server: mysqltest.Start(t)}
			s.relay = relay.New(t, s.server.Addr())
			table, optimistic := use(t, through(s.relay.Addr(), "mode=table")), use(t, through(s.relay.Addr(), "mode=optimistic"))
			s.kept = []*kept{
				keep(t, table, leaseOf("x", backendtest.Exclusive, keptTTL)), keep(t, table, leaseOf("s", backendtest.Shared, keptTTL)),
				keep(t, optimistic, leaseOf("o", backendtest.Exclusive, keptTTL)),
			}
			fault(s)
			s.renew()
			for _, k := range s.kept {
				k.release(t)
			}
			if n := s.server.Conn("d").Number("SELECT COUNT(*) FROM dlock_lock WHERE token <> ''"); n != 0 {
				t.Errorf("%d locks are left", n)
			}
		})
	}
}

// TestPessimisticOutlivesSlowness: what does not end the connection does not end the
// lock, also a read lock on all tables, which keeps others from renewing.
func TestPessimisticOutlivesSlowness(t *testing.T) {
	for _, what := range []string{"hang", "late replies", "delay", "server stopped", "a global read lock"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := &site{T: t, server: mysqltest.Start(t)}
			s.relay = relay.New(t, s.server.Addr())
			k := keep(t, use(t, through(s.relay.Addr(), "mode=pessimistic")), leaseOf("x", backendtest.Exclusive, keptTTL))
			s.kept = []*kept{k}
			switch what {
			case "hang":
				s.relay.HoldRequests() // a hole loses what was sent, and the connection with it
				time.Sleep(hang)
				s.relay.Pass()
			case "a global read lock":
				c := s.server.Conn("d")
				c.Do("FLUSH TABLES WITH READ LOCK")
				s.renew()
				c.Do("UNLOCK TABLES")
			default:
				passingFaults[what](s)
			}
			s.renew()
			k.release(t)
		})
	}
}

// TestIdleTransactionIsNotEnded: nor does a server that ends transactions in which nothing
// happens for a second.
func TestIdleTransactionIsNotEnded(t *testing.T) {
	server := mysqltest.Start(t, "--idle-transaction-timeout=1", "--idle-readonly-transaction-timeout=1", "--idle-write-transaction-timeout=1")
	h := backendtest.MustAcquire(t, use(t, server.URL("d")+"?mode=pessimistic"), leaseOf("x", backendtest.Exclusive, 30*time.Second))
	time.Sleep(2500 * time.Millisecond)
	if _, err := h.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	backendtest.MustRelease(t, h)
}

// TestHoleForGoodIsALossBeforeTheServerFreesTheLock: nobody gets in before the keeper
// knows.
func TestHoleForGoodIsALossBeforeTheServerFreesTheLock(t *testing.T) {
	for _, options := range modes {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			s := mysqltest.Start(t)
			r := relay.New(t, s.Addr())
			k := keep(t, use(t, through(r.Addr(), options)), leaseOf("x", backendtest.Exclusive, 2*time.Second))
			next := backendtest.Wait(t, use(t, s.URL("d")+"?"+options), leaseOf("x", backendtest.Exclusive, time.Minute))
			r.Hole()
			next.Hold(t)
			taken := boottime.Now()
			select {
			case loss := <-k.Lost():
				if loss.End >= taken || loss.Kill >= loss.End {
					t.Errorf("loss %+v, taken at %v", loss, taken)
				}
			default:
				t.Error("somebody else has the lock, and the keeper knows of no loss")
			}
		})
	}
}

// TestKilledConnection: KILL of the holder's connection while a waiter stands behind it.
// Leases go on over another connection; a transaction is lost at once, its waiter waits
// until the holder has ended its command and said so, or for a TTL.
func TestKilledConnection(t *testing.T) {
	for _, options := range []string{"mode=table", "mode=optimistic"} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			server := mysqltest.Start(t)
			conn, address := server.Conn("d"), server.URL("d")+"?"+options
			b := use(t, address)
			k := keep(t, b, leaseOf("j", backendtest.Exclusive, keptTTL))
			waiter := backendtest.Wait(t, use(t, address), exclusive("j"))
			for range 100 {
				id := ""
				backendtest.Eventually(t, "the gate is held", func() bool {
					if id = holderOf(conn, k.hold.Grant().Token); id != "" {
						return true
					}
					if _, err := k.hold.Renew(t.Context()); err != nil && !errors.Is(err, backend.ErrUnavailable) {
						t.Fatal(err)
					}
					return false
				})
				_ = conn.Try("KILL " + id) // it may be going
				k.isKept(t)
				waiter.StillWaits(t)
			}
			k.renews(t)
			k.release(t)
			backendtest.MustRelease(t, waiter.Hold(t))
		})
	}
	t.Run("mode=pessimistic", func(t *testing.T) {
		t.Parallel()
		server := mysqltest.Start(t)
		conn, address := server.Conn("d"), server.URL("d")+"?mode=pessimistic"
		for i := range 20 {
			h := backendtest.MustAcquire(t, use(t, address), exclusive("j"))
			waiter := backendtest.Wait(t, use(t, address), exclusive("j"))
			conn.Do("KILL " + holderOf(conn, h.Grant().Token))
			if err := backendtest.Receive(t, h.Lost(), "the loss"); !errors.Is(err, backend.ErrLost) {
				t.Fatalf("the loss is %v", err)
			}
			if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrLost) {
				t.Fatalf("round %d: renewal after the loss: %v", i, err)
			}
			waiter.StillWaits(t)
			backendtest.MustRelease(t, h) // the command has ended
			backendtest.MustRelease(t, waiter.Hold(t))
		}
	})
}

// TestKilledTransactionIsWaitedOut: nobody says that the command has ended.
func TestKilledTransactionIsWaitedOut(t *testing.T) {
	for _, options := range modes { // the waiters', which all know the rule
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			server := mysqltest.Start(t)
			h := backendtest.MustAcquire(t, use(t, server.URL("d")+"?mode=pessimistic"), leaseOf("j", backendtest.Exclusive, 2*time.Second))
			waiter := backendtest.Wait(t, use(t, server.URL("d")+"?"+options), exclusive("j"))
			killed := boottime.Now()
			crash(h)
			next := waiter.Hold(t)
			if waited := boottime.Now().Sub(killed); waited < 2*time.Second {
				t.Errorf("the next holder came after %v", waited)
			}
			if next.Grant().Fence <= h.Grant().Fence {
				t.Errorf("fence %d after %d: a rollback has taken one back", next.Grant().Fence, h.Grant().Fence)
			}
			backendtest.MustRelease(t, next)
		})
	}
}

// TestSilentServer: the limit of a wait counts also while nothing answers.
func TestSilentServer(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	closed := relay.New(t, "127.0.0.1:1")
	closed.Refuse()
	for what, addr := range map[string]string{"silent": silent.Addr().String(), "closed": closed.Addr(), "unknown": "no-such-host.invalid:3306"} {
		for _, noWait := range []bool{false, true} {
			t.Run(fmt.Sprint(what, noWait), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				req := exclusive("j")
				req.NoWait = noWait
				_, err := use(t, through(addr, "mode=table")).Acquire(ctx, req)
				if !errors.Is(err, backend.ErrUnavailable) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n") {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// TestServerStopsWhileOthersWait: the line stands when it goes on.
func TestServerStopsWhileOthersWait(t *testing.T) {
	server := mysqltest.Start(t)
	address := server.URL("d") + "?mode=table"
	k := keep(t, use(t, address), leaseOf("j", backendtest.Exclusive, 10*time.Second))
	waiter := backendtest.Wait(t, use(t, address), leaseOf("j", backendtest.Exclusive, 2*time.Second))
	server.Stop()
	time.Sleep(2 * hang)
	server.Cont()
	k.renews(t)
	waiter.StillWaits(t)
	k.release(t)
	backendtest.MustRelease(t, waiter.Hold(t))
}

// TestWaiterOutlivesItsConnection: it joins the line again.
func TestWaiterOutlivesItsConnection(t *testing.T) {
	server := mysqltest.Start(t)
	r := relay.New(t, server.Addr())
	h := backendtest.MustAcquire(t, use(t, server.URL("d")), exclusive("j"))
	b := use(t, through(r.Addr(), "mode=table"))
	waiter := backendtest.Wait(t, b, exclusive("j"))
	r.Cut()
	backendtest.Eventually(t, "it stands again", func() bool { return use(t, server.URL("d")).standing(t, "j") == 1 })
	server.Restart()
	look := use(t, server.URL("d"))
	backendtest.Eventually(t, "it stands again after a restart", func() bool {
		list, err := look.Inspect(t.Context(), "j")
		return err == nil && len(list[0].Waiters) == 1
	})
	backendtest.MustRelease(t, h)
	backendtest.MustRelease(t, waiter.Hold(t))
}

// TestTakeOfUnknownOutcomeIsWithdrawn: the reply to a take is lost, the contender gives
// up, and nobody holds the lock after that.
func TestTakeOfUnknownOutcomeIsWithdrawn(t *testing.T) {
	for _, options := range []string{"mode=table", "mode=pessimistic"} {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			server := mysqltest.Start(t)
			r := relay.New(t, server.Addr())
			b := use(t, through(r.Addr(), options))
			backendtest.MustRelease(t, backendtest.MustAcquire(t, b, exclusive("j"))) // connected
			r.HoldReplies()
			conn := server.Conn("d")
			w := backendtest.Acquire(t, b, exclusive("j"))
			backendtest.Eventually(t, "the row is taken", func() bool {
				return conn.Number("SELECT COUNT(*) FROM dlock_lock WHERE token <> ''") == 1
			})
			enough := errors.New("enough")
			w.Cancel(enough)
			time.Sleep(firstLimit + firstPause) // as long as the first request has in any case
			r.Cut()
			if err := w.Err(t); !errors.Is(err, enough) {
				t.Errorf("%v", err)
			}
			backendtest.Eventually(t, "it is free", func() bool { return len(backendtest.InspectOne(t, use(t, server.URL("d")), "j").Holders) == 0 })
		})
	}
}

// TestStaleToken: a late release or renewal never harms the next holder.
func TestStaleToken(t *testing.T) {
	rounds := 100
	if os.Getenv("DLOCK_FULL") != "" {
		rounds = 1000
	}
	server := mysqltest.Start(t)
	conn := server.Conn("d")
	a, b := use(t, server.URL("d")), use(t, server.URL("d"))
	for range rounds {
		stale := backendtest.MustAcquire(t, a, backendtest.Detached(exclusive("j"), time.Hour))
		conn.Do("UPDATE dlock_lock SET expires = UTC_TIMESTAMP(6), version = version + 1") // its time is over
		var race sync.WaitGroup
		race.Go(func() {
			if err := stale.Release(t.Context(), 0); err != nil && !errors.Is(err, backend.ErrLost) {
				t.Errorf("release: %v", err)
			}
		})
		fresh := backendtest.MustAcquire(t, b, exclusive("j"))
		race.Wait()
		if err := stale.Release(t.Context(), 0); !errors.Is(err, backend.ErrLost) {
			t.Fatalf("release: %v", err)
		}
		if _, err := stale.Renew(t.Context()); !errors.Is(err, backend.ErrLost) {
			t.Fatalf("renewal: %v", err)
		}
		if _, err := fresh.Renew(t.Context()); err != nil {
			t.Fatalf("the new holder was harmed: %v", err)
		}
		backendtest.MustRelease(t, fresh)
	}
}

// TestLossOfTheRow: whoever deletes or replaces the row, or the table, ends the hold.
func TestLossOfTheRow(t *testing.T) {
	for what, statement := range map[string]string{
		"deleted": "DELETE FROM dlock_lock", "replaced": "UPDATE dlock_lock SET token = 'other', holders = '', version = version + 1",
		"dropped": "DROP TABLE dlock_lock",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			server := mysqltest.Start(t)
			k := keep(t, use(t, server.URL("d")), leaseOf("j", backendtest.Exclusive, 2*time.Second))
			server.Do(statement)
			if loss := k.loss(t); !errors.Is(loss.Err, backend.ErrLost) || errors.Is(loss.Err, renew.ErrLate) {
				t.Errorf("the loss is %v", loss.Err)
			}
			if what == "dropped" { // and the next fence is larger
				k.Stop()
				if err := k.hold.Release(t.Context(), 0); !errors.Is(err, backend.ErrLost) {
					t.Errorf("release: %v", err)
				}
				h := backendtest.MustAcquire(t, use(t, server.URL("d")), exclusive("j"))
				if h.Grant().Fence <= k.hold.Grant().Fence {
					t.Errorf("fence %d after %d", h.Grant().Fence, k.hold.Grant().Fence)
				}
				backendtest.MustRelease(t, h)
			}
		})
	}
}

// TestGlobalReadLockIsNamed: mysqldump --lock-all-tables keeps dlock from renewing, also
// when it is the command that dlock runs. The message says so, and what helps.
func TestGlobalReadLockIsNamed(t *testing.T) {
	server := mysqltest.Start(t)
	for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared} {
		h := backendtest.MustAcquire(t, use(t, server.URL("d")), leaseOf(string(mode.Kind), mode, time.Minute))
		c := server.Conn("d")
		c.Do("FLUSH TABLES WITH READ LOCK")
		_, err := h.Renew(t.Context())
		if !errors.Is(err, backend.ErrUnavailable) || !strings.Contains(err.Error(), "--single-transaction") {
			t.Errorf("%v: %v", mode, err)
		}
		c.Do("UNLOCK TABLES")
		c.Do("START TRANSACTION")
		c.Do("SELECT * FROM dlock_lock FOR UPDATE")
		if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrUnavailable) || strings.Contains(err.Error(), "--single-transaction") {
			t.Errorf("%v: a locked row is told as %v", mode, err)
		}
		c.Do("ROLLBACK")
		if _, err := h.Renew(t.Context()); err != nil {
			t.Error(err)
		}
		backendtest.MustRelease(t, h)
	}
}

// TestSlowCommitIsWaitedFor: a holder opens its gate before the row that it has freed is
// durable. Who is next, of whatever kind, waits at the row then, and does not take the
// holder for one without a gate, which is looked at once a second.
func TestSlowCommitIsWaitedFor(t *testing.T) {
	server := mysqltest.Start(t)
	for _, tt := range []struct {
		options string
		mode    backend.Mode
	}{{"mode=optimistic", backendtest.Exclusive}, {"mode=table", backendtest.Shared}} {
		t.Run(tt.options+" "+tt.mode.String(), func(t *testing.T) {
			address := server.URL("d") + "?" + tt.options
			h := backendtest.MustAcquire(t, use(t, address), exclusive("j"))
			w := backendtest.Wait(t, use(t, address), backendtest.Request("j", tt.mode))
			backup, eye := server.Conn("d"), server.Conn("d")
			standing := func(doing string) {
				t.Helper()
				backendtest.Eventually(t, doing, func() bool {
					return eye.Number("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND INFO LIKE '%"+doing+"%'") == 1
				})
			}
			standing("GET_LOCK")
			for _, stage := range []string{"START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"} {
				backup.Do("BACKUP STAGE " + stage)
			}
			released := make(chan error, 1)
			go func() { released <- h.Release(context.Background(), 0) }()
			standing("LOCK IN SHARE MODE")
			backup.Do("BACKUP STAGE END")
			backendtest.MustRelease(t, w.Hold(t))
			if err := backendtest.Receive(t, released, "the release"); err != nil {
				t.Error(err)
			}
		})
	}
}
