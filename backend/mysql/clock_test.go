package mysql

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/mysqltest"
)

const year = 365 * 24 * time.Hour

// TestClockIsSet: the server's clock goes a year forward and back while a lock is held,
// waited for, renewed and passed on. There are never two holders, and nobody is stuck.
func TestClockIsSet(t *testing.T) {
	for _, options := range modes {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			server, clock := mysqltest.StartWithClock(t)
			address := server.URL("d") + "?" + options
			conn := server.Conn("d")
			told := func() string { return conn.One("SELECT YEAR(UTC_TIMESTAMP())") }
			before := told()
			clock.Set(year)
			if told() == before {
				t.Fatal("the clock cannot be set: the test would show nothing")
			}
			clock.Set(0)
			for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared} {
				name := string(mode.Kind)
				a, b := use(t, address), use(t, address)
				held := keep(t, a, leaseOf(name, mode, 2*time.Second))
				waiter := backendtest.Wait(t, b, exclusive(name))
				last := held.hold.Grant().Fence
				for _, ahead := range []time.Duration{year, 0, -year, 0, 2 * year, year / 2} {
					clock.Set(ahead)
					backendtest.MustBeBusy(t, a, exclusive(name))
					held.renews(t)
					backendtest.MustBeBusy(t, a, exclusive(name))
					waiter.StillWaits(t)
				}
				held.release(t)
				h := waiter.Hold(t)
				if h.Grant().Fence <= last {
					t.Errorf("fence %d after %d", h.Grant().Fence, last)
				}
				backendtest.MustRelease(t, h)
			}
		})
	}
}

// TestClockIsSetBackAfterACrash: what a dead holder left does not stand for a year.
func TestClockIsSetBackAfterACrash(t *testing.T) {
	for _, options := range modes {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			server, clock := mysqltest.StartWithClock(t)
			address := server.URL("d") + "?" + options
			for _, mode := range []backend.Mode{backendtest.Exclusive, backendtest.Shared} {
				name := string(mode.Kind)
				clock.Set(year)
				h := backendtest.MustAcquire(t, use(t, address), leaseOf(name, mode, time.Second))
				waiter := backendtest.Wait(t, use(t, address), exclusive(name))
				clock.Set(0)
				crash(h)
				backendtest.MustRelease(t, waiter.Hold(t))
				if options == "mode=pessimistic" {
					continue
				}
				clock.Set(year)
				backendtest.MustAcquire(t, use(t, address), backendtest.Detached(leaseOf(name, mode, time.Second), time.Second))
				clock.Set(0)
				backendtest.MustRelease(t, backendtest.MustAcquire(t, use(t, address), exclusive(name)))
			}
		})
	}
}

// TestClockIsSetWhileACrashSettles: what a killed transaction left is waited out by our
// own clock as well, so that a step does not cut it short.
func TestClockIsSetWhileACrashSettles(t *testing.T) {
	t.Parallel()
	server, clock := mysqltest.StartWithClock(t)
	address := server.URL("d") + "?mode=pessimistic"
	h := backendtest.MustAcquire(t, use(t, address), leaseOf("j", backendtest.Exclusive, 3*time.Second))
	waiter := backendtest.Wait(t, use(t, address), exclusive("j"))
	killed := time.Now()
	crash(h)
	conn := server.Conn("d")
	backendtest.Eventually(t, "the head has seen it", func() bool {
		return conn.One("SELECT expires < '9999-01-01' FROM dlock_lock WHERE name = 'j'") == "1"
	})
	clock.Set(year)
	next := waiter.Hold(t)
	if waited := time.Since(killed); waited < 3*time.Second {
		t.Errorf("the next holder came after %v", waited)
	}
	backendtest.MustRelease(t, next)
}

// crash ends the connection of a hold as the death of its process does.
func crash(h backend.Hold) {
	switch h := h.(type) {
	case *hold:
		h.mu.Lock()
		h.s.wire.Close()
		h.mu.Unlock()
	case *pinned:
		h.stop()
		h.s.wire.Close()
	}
}

// TestZones: the server's zone, a fold of it, and what a session says of it count for
// nothing.
func TestZones(t *testing.T) {
	t.Parallel()
	server, clock := mysqltest.StartWithClock(t, "--default-time-zone=+11:30")
	address := server.URL("d") + "?mode=table"
	for _, zone := range []string{"-12:00", "+13:00"} {
		server.Do("SET GLOBAL time_zone = '" + zone + "'")
		h := backendtest.MustAcquire(t, use(t, address), leaseOf("j", backendtest.Exclusive, time.Minute))
		left := backendtest.InspectOne(t, use(t, address), "j").Holders[0].Left
		if left <= 0 || left > time.Minute {
			t.Errorf("in %s %v are left", zone, left)
		}
		backendtest.MustRelease(t, h)
	}
	clock.Set(20 * year) // after 2038
	h := backendtest.MustAcquire(t, use(t, address), leaseOf("j", backendtest.Exclusive, time.Minute))
	if _, err := h.Renew(t.Context()); err != nil && !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("after 2038: %v", err)
	}
	backendtest.MustRelease(t, h)
}
