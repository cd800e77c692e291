package tair

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/backendtest/tairtest"
)

const (
	lockKey = "dlock:{j}"
	month   = "2592000000" // ms
)

func use(t testing.TB, addr string) *Backend {
	t.Helper()
	o, err := ParseURL(&url.URL{Scheme: schemePlain, Host: addr})
	if err != nil {
		t.Fatal(err)
	}
	o.Namespace = "dlock"
	b := New(o)
	t.Cleanup(func() { b.Close() })
	return b
}

func request() backend.Request { return backendtest.Request("j", backendtest.Exclusive) }

// TestCommands holds what is sent, byte by byte, against the vendor's reference.
func TestCommands(t *testing.T) {
	f := tairtest.Start(t)
	b, ctx := use(t, f.Addr()), t.Context()
	req := request()
	token := req.Token
	sent := func(what string, want ...string) {
		t.Helper()
		if got := f.Commands(); !slices.Equal(got, want) {
			t.Errorf("%s: sent\n%q, want\n%q", what, got, want)
		}
	}
	view := []string{
		tairtest.Command("GET", lockKey), tairtest.Command("PTTL", lockKey), tairtest.Command("GET", lockKey+":o"), tairtest.Command("HGET", lockKey+":m", "f"), tairtest.Command("TIME"),
	}

	h := backendtest.MustAcquire(t, b, req)
	var r record
	stored := f.Client().Get(ctx, lockKey+":o").Val()
	if err := json.Unmarshal([]byte(stored), &r); err != nil || r.Token != token || r.Fence != h.Grant().Fence {
		t.Fatalf("record %s: %v", stored, err)
	}
	began := strconv.FormatInt(r.Since, 10)
	sent("take",
		tairtest.Command("CAS", lockKey, token, token, "PX", "30000"),
		tairtest.Command("SET", lockKey, token, "NX", "PX", "30000"),
		tairtest.Command("HINCRBY", lockKey+":m", "f", "1"), tairtest.Command("TIME"),
		tairtest.Command("HINCRBY", lockKey+":m", "f", began), // no number was known
		tairtest.Command("SET", lockKey+":o", stored, "PX", month), tairtest.Command("PEXPIRE", lockKey+":m", month),
		tairtest.Command("ZREMRANGEBYSCORE", "dlock:{}:index", "-inf", fmt.Sprint(r.Since/1000)),
		tairtest.Command("ZADD", "dlock:{}:index", fmt.Sprint(r.Since/1000+2592000000), "j"),
	)
	if _, err := h.Renew(ctx); err != nil {
		t.Error(err)
	}
	sent("renewal", tairtest.Command("CAS", lockKey, token, token, "PX", "30000"))

	other := request()
	backendtest.MustBeBusy(t, b, other)
	sent("busy", append([]string{tairtest.Command("CAS", lockKey, other.Token, other.Token, "PX", "30000")}, view...)...)

	if _, err := b.Revoke(ctx, "j", token[:8], false); err != nil {
		t.Error(err)
	}
	marked := f.Commands()
	_, last, err := tairtest.ReadCommand(bufio.NewReader(strings.NewReader(marked[len(marked)-1])))
	if err != nil || len(last) != 6 || !slices.Equal(last[:5], []string{"CAS", lockKey, token, "dlock:revoked:" + token, "PX"}) {
		t.Errorf("revocation: sent %q", last)
	} else if left, err := strconv.Atoi(last[5]); err != nil || left <= 0 || left > 30000 { // it goes on until its end
		t.Errorf("revocation for %s ms", last[5])
	}
	if err := h.Release(ctx, 0); err != nil {
		t.Error(err)
	}
	sent("release of what was revoked", tairtest.Command("CAD", lockKey, token), tairtest.Command("CAD", lockKey, "dlock:revoked:"+token))

	h = backendtest.MustAcquire(t, b, other)
	f.Commands()
	if err := h.Release(ctx, 5*time.Second); err != nil {
		t.Error(err)
	}
	sent("tail", tairtest.Command("CAS", lockKey, other.Token, "dlock:tail:"+other.Token, "PX", "5000"))
	if err := h.Release(ctx, 0); !errors.Is(err, backend.ErrLost) {
		t.Errorf("second release: %v", err)
	}
	sent("release of what was lost", tairtest.Command("CAD", lockKey, other.Token), tairtest.Command("CAD", lockKey, "dlock:revoked:"+other.Token))
}

// TestLife: what the commands come to.
func TestLife(t *testing.T) {
	f := tairtest.Start(t)
	b, client := use(t, f.Addr()), f.Client()
	req := request()
	h := backendtest.MustAcquire(t, b, req)
	if got := client.Get(t.Context(), lockKey).Val(); got != req.Token {
		t.Errorf("the key is %q, want the token, as other programs have it", got)
	}
	if l := h.Grant().Lease; l.TTL != req.TTL || l.Every != req.TTL/3 {
		t.Errorf("lease %+v", l)
	}
	again := backendtest.MustAcquire(t, b, backendtest.NoWait(req))
	if again.Grant().Fence != h.Grant().Fence {
		t.Errorf("a repeated request got fence %d after %d", again.Grant().Fence, h.Grant().Fence)
	}
	busy := backendtest.MustBeBusy(t, b, request())
	if len(busy.Holders) != 1 || busy.Holders[0].Token != req.Token || busy.Holders[0].Owner != req.Owner {
		t.Errorf("held by %+v", busy.Holders)
	}
	s := backendtest.InspectOne(t, b, "j")
	if len(s.Holders) != 1 || s.Fence != h.Grant().Fence || s.Holders[0].Left <= 0 || s.Holders[0].Held < 0 {
		t.Errorf("inspect: %+v", s)
	}
	if list, err := b.Inspect(t.Context()); err != nil || len(list) != 1 || list[0].Name != "j" {
		t.Errorf("inspect of all: %+v, %v", list, err)
	}
	if _, err := b.Attach(t.Context(), "j", req.Token, 0); !errors.Is(err, backend.ErrRunning) {
		t.Errorf("attach to a run: %v", err)
	}
	w := backendtest.Wait(t, b, request())
	backendtest.MustRelease(t, h)
	next := w.Hold(t)
	if next.Grant().Fence <= h.Grant().Fence {
		t.Errorf("fence %d after %d", next.Grant().Fence, h.Grant().Fence)
	}
	if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("renewal of what was released: %v", err)
	}
	if err := h.Release(t.Context(), 0); !errors.Is(err, backend.ErrLost) {
		t.Errorf("second release: %v", err)
	}
	backendtest.MustBeBusy(t, b, request()) // nobody was harmed
	if _, err := b.Revoke(t.Context(), "j", next.Grant().Token, false); err != nil {
		t.Error(err)
	}
	if _, err := next.Renew(t.Context()); !errors.Is(err, backend.ErrRevoked) {
		t.Errorf("renewal of what was revoked: %v", err)
	}
	if s := backendtest.InspectOne(t, b, "j"); len(s.Holders) != 1 || !s.Holders[0].Revoked {
		t.Errorf("inspect: %+v, want one that is revoked", s)
	}
	if err := next.Release(t.Context(), time.Hour); err != nil {
		t.Error(err)
	}
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	last := backendtest.MustAcquire(t, b, backendtest.NoWait(request()))
	if last.Grant().Fence <= next.Grant().Fence {
		t.Errorf("after the data were lost, fence %d after %d", last.Grant().Fence, next.Grant().Fence)
	}
	backendtest.MustRelease(t, last)
	if err := client.HSet(t.Context(), lockKey+":m", "f", 1).Err(); err != nil { // as one leaves it who dies then
		t.Fatal(err)
	}
	next, last = last, backendtest.MustAcquire(t, b, backendtest.NoWait(request()))
	if last.Grant().Fence <= next.Grant().Fence {
		t.Errorf("after one that died before its number was seeded, fence %d after %d", last.Grant().Fence, next.Grant().Fence)
	}
	if err := last.Release(t.Context(), 2*time.Second); err != nil {
		t.Error(err)
	}
	req = request()
	req.TailIsBusy = true
	_, err := b.Acquire(t.Context(), req)
	if busy := (*backend.BusyError)(nil); !errors.As(err, &busy) || !busy.Holders[0].Tail {
		t.Errorf("beside a tail: %v", err)
	}
	h = backendtest.MustAcquire(t, b, request()) // after the tail
	if err := b.Forget(t.Context(), "j"); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("forget a held lock: %v", err)
	}
	backendtest.MustRelease(t, h)
	if err := b.Forget(t.Context(), "j"); err != nil {
		t.Errorf("forget: %v", err)
	}
	if keys := client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("what is left of a forgotten lock: %q", keys)
	}
}

// TestDetached: a hold without a process is renewed and released from anywhere, and no
// renewal shortens it.
func TestDetached(t *testing.T) {
	f := tairtest.Start(t)
	b := use(t, f.Addr())
	h := backendtest.MustAcquire(t, b, backendtest.Detached(request(), time.Hour))
	for _, tt := range []struct{ ttl, least time.Duration }{{2 * time.Hour, 119 * time.Minute}, {time.Minute, 119 * time.Minute}, {0, 119 * time.Minute}} {
		found, err := use(t, f.Addr()).Attach(t.Context(), "j", h.Grant().Token, tt.ttl)
		if err != nil || found.Grant().Fence != h.Grant().Fence {
			t.Fatalf("attach: %v", err)
		}
		if lease, err := found.Renew(t.Context()); err != nil || lease.TTL < tt.least {
			t.Errorf("renewal for %v: %v, %v", tt.ttl, lease.TTL, err)
		}
		if left := backendtest.InspectOne(t, b, "j").Holders[0].Left; left < tt.least {
			t.Errorf("after a renewal for %v, %v are left", tt.ttl, left)
		}
	}
	if _, err := b.Revoke(t.Context(), "j", h.Grant().Token[:8], false); err != nil {
		t.Error(err)
	}
	if _, err := b.Attach(t.Context(), "j", h.Grant().Token, 0); !errors.Is(err, backend.ErrLost) {
		t.Errorf("attach to what was revoked: %v", err)
	}
	short := backendtest.MustAcquire(t, b, backendtest.Detached(request(), time.Second))
	backendtest.MustRelease(t, backendtest.MustAcquire(t, b, request())) // after its end
	if _, err := short.Renew(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("renewal of what has ended: %v", err)
	}
}

// TestForeign: a program that uses the same key excludes dlock, and is not ended by it.
func TestForeign(t *testing.T) {
	f := tairtest.Start(t)
	b := use(t, f.Addr())
	if err := f.Client().Set(t.Context(), lockKey, "somebody", time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	busy := backendtest.MustBeBusy(t, b, request())
	if len(busy.Holders) != 1 || busy.Holders[0].Owner.Kind != backend.Foreign || busy.Holders[0].Left <= 0 {
		t.Errorf("held by %+v", busy.Holders)
	}
	if _, err := b.Revoke(t.Context(), "j", "somebody", true); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("revoke: %v", err)
	}
	backendtest.MustRelease(t, backendtest.MustAcquire(t, b, request()))
}

// TestContenders: one at a time, with fences that only grow.
func TestContenders(t *testing.T) {
	f := tairtest.Start(t)
	var inside atomic.Int32
	var last atomic.Uint64
	var all sync.WaitGroup
	for range 4 {
		b := use(t, f.Addr())
		all.Go(func() {
			for range 5 {
				h, err := b.Acquire(t.Context(), request())
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				if f := h.Grant().Fence; inside.Add(1) != 1 || last.Swap(f) >= f {
					t.Error("two holders, or a fence that did not grow")
				}
				inside.Add(-1)
				backendtest.MustRelease(t, h)
			}
		})
	}
	all.Wait()
}

// TestRefusals: what cannot be had is told in one clear line, and nothing is taken.
func TestRefusals(t *testing.T) {
	f := tairtest.Start(t)
	for _, mode := range []backend.Mode{backendtest.Shared, backendtest.Slots(2)} {
		_, err := use(t, f.Addr()).Acquire(t.Context(), backendtest.NoWait(backendtest.Request("j", mode)))
		if !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "use redis://") {
			t.Errorf("%v: %v", mode, err)
		}
	}
	plain := redistest.Start(t)
	b := use(t, plain.Addr())
	_, err := b.Acquire(t.Context(), request())
	if !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), "use redis://") || strings.Contains(err.Error(), "\n") {
		t.Errorf("on a server that is no Tair: %v", err)
	}
	if keys := plain.Client().Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("left on a server that is no Tair: %q", keys)
	}
	plain.Kill()
	if _, err := b.Acquire(t.Context(), backendtest.NoWait(request())); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := b.Acquire(ctx, request()); !errors.Is(err, backend.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "\n") {
		t.Errorf("a wait without a server: %v", err)
	}
}
