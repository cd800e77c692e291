package zookeeper_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/zktest"
)

func TestTLS(t *testing.T) {
	s := zktest.StartTLS(t)
	h := backendtest.MustAcquire(t, dial(t, s.URL("/x")), exclusive(30*time.Second))
	if l := h.Grant().Lease; l.TTL <= 20*time.Second || l.TTL > 30*time.Second {
		t.Errorf("lease %+v: the granted timeout was not read", l)
	}
	if _, err := h.Renew(t.Context()); err != nil {
		t.Error(err)
	}
	backendtest.MustBeBusy(t, dial(t, s.Server.URL()+"/x"), exclusive(30*time.Second)) // without TLS
	backendtest.MustRelease(t, h)
	for what, address := range map[string]string{
		"without a certificate":     fmt.Sprintf("zks://localhost:%d/x?ca=%s", s.SecurePort, s.CA),
		"with an unknown authority": fmt.Sprintf("zks://localhost:%d/x", s.SecurePort),
		"for another name":          s.URL("/x") + "&server-name=other",
		"without TLS":               fmt.Sprintf("zk://localhost:%d/x", s.SecurePort),
	} {
		_, err := dial(t, address).Acquire(t.Context(), backendtest.NoWait(exclusive(30*time.Second)))
		if !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("%s: %v, want %v", what, err, backend.ErrUnavailable)
		}
		t.Logf("%s: %v", what, err)
	}
}

// TestExpiredHoldHasOneHeir lets many contenders, foreign ones' places in between, find
// the same detached hold expired while its owner tries to renew it: either the owner
// has it for another while, or exactly one of them.
func TestExpiredHoldHasOneHeir(t *testing.T) {
	server := zktest.Start(t)
	var mu sync.Mutex
	inside, renewed := 0, 0
	for round := range 5 {
		address := fmt.Sprintf("%s/heirs/%d", server.URL(), round)
		owner := dial(t, address)
		d := backendtest.MustAcquire(t, owner, backendtest.Detached(exclusive(time.Second), time.Second))
		var all sync.WaitGroup
		for range 8 {
			b := dial(t, address)
			all.Go(func() {
				h, err := b.Acquire(t.Context(), exclusive(30*time.Second))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				if inside++; inside > 1 {
					t.Error("two heirs")
				}
				mu.Unlock()
				if _, err := d.Renew(t.Context()); !errors.Is(err, backend.ErrLost) {
					t.Errorf("the owner renews while somebody else holds: %v", err)
				}
				mu.Lock()
				inside--
				mu.Unlock()
				backendtest.MustRelease(t, h)
			})
		}
		for {
			time.Sleep(d.Grant().Lease.TTL + rand.N(20*time.Millisecond)) // about when somebody looks
			_, err := d.Renew(t.Context())
			if errors.Is(err, backend.ErrLost) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			renewed++
		}
		all.Wait()
	}
	t.Logf("the owner was faster %d times", renewed)
}

// TestMixedRecipesAreRefused: contenders that do not heed each other are not put into
// one line.
func TestMixedRecipesAreRefused(t *testing.T) {
	server := zktest.Start(t)
	plain, rw := server.URL()+"/x", server.URL()+"/x?recipe=rwlock"
	for _, tt := range []struct{ first, second string }{{plain, rw}, {rw, plain}} {
		h := backendtest.MustAcquire(t, dial(t, tt.first), exclusive(30*time.Second))
		_, err := dial(t, tt.second).Acquire(t.Context(), exclusive(30*time.Second))
		if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), "recipe=rwlock") {
			t.Errorf("%s beside %s: %v", tt.second, tt.first, err)
		}
		if s := backendtest.InspectOne(t, dial(t, tt.second), "j"); len(s.Holders) != 1 || len(s.Waiters) != 0 {
			t.Errorf("left: %+v", s)
		}
		backendtest.MustRelease(t, h)
	}
}
