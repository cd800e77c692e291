package record

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
)

var (
	exclusive = backend.Mode{Kind: backend.Exclusive}
	shared    = backend.Mode{Kind: backend.Shared}
)

func slots(n int) backend.Mode { return backend.Mode{Kind: backend.Slots, N: n} }

const (
	t0  Time = 1_000_000
	sec      = time.Second
)

// at is the moment n seconds after t0.
func at(n int) Time { return t0.Add(time.Duration(n) * sec) }

// claim asks for a lease of 10 s, and waits in line for 20 s.
func claim(token string, mode backend.Mode) Claim {
	return Claim{
		Token: token, Mode: mode, TTL: 10 * sec, Leased: true, Seed: 500, Place: 20 * sec,
		Owner: backend.Owner{Kind: backend.Run, User: token},
	}
}

// took fails the test unless the claim is granted.
func took(t *testing.T, r *Record, now Time, c Claim) Holder {
	t.Helper()
	h, err := r.Take(now, c)
	if err != nil {
		t.Fatalf("take %s: %v", c.Token, err)
	}
	return h
}

// busy fails the test unless the claim has to wait behind so many.
func busy(t *testing.T, r *Record, now Time, c Claim, ahead int) *backend.BusyError {
	t.Helper()
	_, err := r.Take(now, c)
	var b *backend.BusyError
	if !errors.As(err, &b) {
		t.Fatalf("take %s: %v, want busy", c.Token, err)
	}
	if b.Ahead != ahead {
		t.Fatalf("take %s: %d ahead, want %d", c.Token, b.Ahead, ahead)
	}
	return b
}

// wants fails the test unless err is what was wanted.
func wants(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

func line(r *Record) string {
	var tokens []string
	for _, w := range r.Queue {
		tokens = append(tokens, w.Token)
	}
	return strings.Join(tokens, " ")
}

func TestAdmission(t *testing.T) {
	for _, c := range []struct {
		name    string
		holders []backend.Mode
		queue   []backend.Mode
		mode    backend.Mode
		want    bool
	}{
		{"free", nil, nil, exclusive, true},
		{"free, shared", nil, nil, shared, true},
		{"free, slots", nil, nil, slots(1), true},
		{"held", []backend.Mode{exclusive}, nil, exclusive, false},
		{"held, shared", []backend.Mode{exclusive}, nil, shared, false},
		{"held, slots", []backend.Mode{exclusive}, nil, slots(2), false},
		{"reader beside readers", []backend.Mode{shared, shared}, nil, shared, true},
		{"writer after readers", []backend.Mode{shared}, nil, exclusive, false},
		{"slots after readers", []backend.Mode{shared}, nil, slots(2), false},
		{"a free slot", []backend.Mode{slots(2)}, nil, slots(2), true},
		{"no free slot", []backend.Mode{slots(2), slots(2)}, nil, slots(2), false},
		{"reader after slots", []backend.Mode{slots(2)}, nil, shared, false},
		{"writer after slots", []backend.Mode{slots(2)}, nil, exclusive, false},
		{"reader behind a writer", []backend.Mode{shared}, []backend.Mode{exclusive}, shared, false},
		{"reader behind a reader", []backend.Mode{shared}, []backend.Mode{shared}, shared, true},
		{"free, behind a reader", nil, []backend.Mode{shared}, shared, true},
		{"free, writer behind a reader", nil, []backend.Mode{shared}, exclusive, false},
		{"free, behind a writer", nil, []backend.Mode{exclusive}, exclusive, false},
		{"free, reader behind reader and writer", nil, []backend.Mode{shared, exclusive}, shared, false},
		{"the last free slot is the waiter's", []backend.Mode{slots(2)}, []backend.Mode{slots(2)}, slots(2), false},
		{"a free slot each", []backend.Mode{slots(3)}, []backend.Mode{slots(3)}, slots(3), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var r Record
			for _, m := range c.holders {
				r.Holders = append(r.Holders, Holder{Token: "h", Mode: m})
			}
			for _, m := range c.queue {
				r.Queue = append(r.Queue, Waiter{Token: "w", Mode: m, Expires: at(9)})
			}
			_, err := r.Take(t0, claim("a", c.mode))
			if got := err == nil; got != c.want {
				t.Errorf("taken: %v (%v), want %v", got, err, c.want)
			}
		})
	}
}

func TestTakeGrants(t *testing.T) {
	var r Record
	got := took(t, &r, t0, claim("a", exclusive))
	want := Holder{
		Token: "a", Mode: exclusive, Owner: backend.Owner{Kind: backend.Run, User: "a"},
		Fence: 500, Since: t0, TTL: 10 * sec, Expires: at(10),
	}
	if got != want {
		t.Errorf("granted %+v, want %+v", got, want)
	}
	if again := took(t, &r, at(9), claim("a", exclusive)); again != want {
		t.Errorf("asked again: %+v, want the same", again)
	}
}

func TestTakeWithoutEnd(t *testing.T) {
	var r Record
	c := claim("a", exclusive)
	c.Leased = false
	if h := took(t, &r, t0, c); h.Expires != 0 {
		t.Errorf("expires at %d, want never", h.Expires)
	}
	if h, err := r.Renew(at(1e6), "a", 5*sec); err != nil || h.Expires != 0 {
		t.Errorf("renewed: expires at %d, %v; want never", h.Expires, err)
	}
	busy(t, &r, at(1e6), claim("b", exclusive), 0)
	if err := r.Leave(at(1e6), "a", 5*sec); err != nil {
		t.Fatal(err)
	}
	busy(t, &r, at(1e6+4), claim("b", exclusive), 0)
	took(t, &r, at(1e6+5), claim("b", exclusive))
}

func TestTakeRefuses(t *testing.T) {
	held := func() *Record {
		var r Record
		took(t, &r, t0, claim("a", slots(2)))
		busy(t, &r, t0, claim("w", exclusive), 0)
		return &r
	}
	lease := claim("b", exclusive)
	lease.TTL = 0
	for name, c := range map[string]Claim{
		"no token":                 claim("", exclusive),
		"no mode":                  claim("b", backend.Mode{}),
		"no TTL":                   lease,
		"another mode when held":   claim("a", exclusive),
		"another mode when queued": claim("w", shared),
		"other slots":              claim("b", slots(3)),
	} {
		r := held()
		_, err := r.Take(t0, c)
		wants(t, name, err, backend.ErrInvalid)
		if !reflect.DeepEqual(r, held()) {
			t.Errorf("%s: the record changed", name)
		}
	}
}

func TestSlotsDiffer(t *testing.T) {
	var r Record
	took(t, &r, t0, claim("a", exclusive))
	busy(t, &r, t0, claim("b", slots(2)), 0)
	_, err := r.Take(t0, claim("c", slots(7)))
	wants(t, "slots 7 behind slots 2", err, backend.ErrInvalid)
	for _, n := range []string{"2", "7"} {
		if !strings.Contains(err.Error(), n) {
			t.Errorf("%q does not name %s", err, n)
		}
	}
	r.Quit("b")
	busy(t, &r, t0, claim("c", slots(7)), 0)
}

func TestBusyTellsWho(t *testing.T) {
	var r Record
	took(t, &r, t0, claim("a", exclusive))
	b := busy(t, &r, at(3), claim("b", exclusive), 0)
	want := []backend.Holder{{
		Token: "a", Owner: backend.Owner{Kind: backend.Run, User: "a"}, Mode: exclusive, Fence: 500,
		Held: 3 * sec, Leased: true, Left: 7 * sec,
	}}
	if !reflect.DeepEqual(b.Holders, want) {
		t.Errorf("holders %+v, want %+v", b.Holders, want)
	}
}

func TestLine(t *testing.T) {
	var r Record
	took(t, &r, t0, claim("a", exclusive))
	now := claim("n", exclusive)
	now.Place = 0
	busy(t, &r, t0, now, 0)
	busy(t, &r, t0, claim("b", exclusive), 0)
	busy(t, &r, at(1), claim("c", shared), 1)
	busy(t, &r, at(1), claim("d", shared), 2)
	busy(t, &r, at(2), claim("b", exclusive), 0)
	busy(t, &r, at(2), now, 3)
	if got := line(&r); got != "b c d" {
		t.Fatalf("line %q, want b c d", got)
	}
	if err := r.Release(at(2), "a"); err != nil {
		t.Fatal(err)
	}
	busy(t, &r, at(2), claim("d", shared), 2)
	took(t, &r, at(2), claim("b", exclusive))
	if err := r.Release(at(2), "b"); err != nil {
		t.Fatal(err)
	}
	took(t, &r, at(2), claim("d", shared)) // c may still come in beside it
	took(t, &r, at(2), claim("c", shared))
	if got := line(&r); got != "" {
		t.Fatalf("line %q, want nobody", got)
	}
}

func TestPlaceRunsOut(t *testing.T) {
	var r Record
	c := claim("a", exclusive)
	c.TTL = time.Hour
	took(t, &r, t0, c)
	busy(t, &r, t0, claim("b", exclusive), 0)     // until 20
	busy(t, &r, at(10), claim("c", exclusive), 1) // until 30
	busy(t, &r, at(20), claim("b", exclusive), 1) // over: joins again, until 40
	if got := line(&r); got != "c b" {
		t.Fatalf("line %q, want c b", got)
	}
	short := claim("b", exclusive)
	short.Place = sec
	busy(t, &r, at(20), short, 1) // does not shorten
	busy(t, &r, at(30), claim("n", exclusive), 1)
	if got := line(&r); got != "b n" {
		t.Fatalf("line %q, want b n", got)
	}
	r.Quit("b")
	r.Quit("nobody")
	busy(t, &r, at(30), claim("n", exclusive), 0)
}

func TestRenew(t *testing.T) {
	for _, c := range []struct {
		name    string
		now     int
		ttl     time.Duration
		expires int
		wantTTL time.Duration
	}{
		{"its own TTL", 4, 0, 14, 10 * sec},
		{"a longer one", 4, 30 * sec, 34, 30 * sec},
		{"a shorter one never shortens", 4, sec, 10, sec},
		{"at the last moment", 9, sec, 10, sec},
	} {
		var r Record
		took(t, &r, t0, claim("a", exclusive))
		h, err := r.Renew(at(c.now), "a", c.ttl)
		if err != nil || h.Expires != at(c.expires) || h.TTL != c.wantTTL || h.Fence != 500 {
			t.Errorf("%s: %+v, %v", c.name, h, err)
		}
	}
}

func TestAfterTheEnd(t *testing.T) {
	for name, op := range map[string]func(r *Record, now Time) error{
		"renew":   func(r *Record, now Time) error { _, err := r.Renew(now, "a", 0); return err },
		"release": func(r *Record, now Time) error { return r.Release(now, "a") },
		"leave":   func(r *Record, now Time) error { return r.Leave(now, "a", sec) },
		"revoke":  func(r *Record, now Time) error { _, err := r.Revoke(now, "a", false); return err },
	} {
		var r Record
		wants(t, name+" of nothing", op(&r, t0), backend.ErrLost)
		took(t, &r, t0, claim("a", exclusive))
		wants(t, name+" of an expired hold", op(&r, at(10)), backend.ErrLost)
		took(t, &r, at(10), claim("b", exclusive))
		wants(t, name+" of another's", op(&r, at(10)), backend.ErrLost)
		if len(r.Holders) != 1 || r.Holders[0].Token != "b" {
			t.Errorf("%s: the next holder was harmed: %+v", name, r.Holders)
		}
	}
}

func TestTail(t *testing.T) {
	for _, tail := range []int{3, 30} { // shorter and longer than the lease
		var r Record
		took(t, &r, t0, claim("a", shared))
		if err := r.Leave(t0, "a", time.Duration(tail)*sec); err != nil {
			t.Fatal(err)
		}
		_, err := r.Renew(at(1), "a", 0)
		wants(t, "renew", err, backend.ErrLost)
		wants(t, "release", r.Release(at(1), "a"), backend.ErrLost)
		wants(t, "leave", r.Leave(at(1), "a", sec), backend.ErrLost)
		_, err = r.Take(at(1), claim("a", shared))
		wants(t, "take", err, backend.ErrLost)

		took(t, &r, at(1), claim("b", shared)) // it holds in its own mode
		if err := r.Release(at(1), "b"); err != nil {
			t.Fatal(err)
		}
		if b := busy(t, &r, at(tail-1), claim("c", exclusive), 0); !b.Holders[0].Tail || b.Holders[0].Left != sec {
			t.Errorf("holder %+v, want a tail with 1s left", b.Holders[0])
		}
		took(t, &r, at(tail), claim("c", exclusive))
	}
}

func TestLeaveWithoutTail(t *testing.T) {
	var r Record
	took(t, &r, t0, claim("a", exclusive))
	if err := r.Leave(t0, "a", 0); err != nil {
		t.Fatal(err)
	}
	took(t, &r, t0, claim("b", exclusive))
	if _, err := r.Revoke(t0, "b", false); err != nil {
		t.Fatal(err)
	}
	if err := r.Leave(t0, "b", time.Hour); err != nil {
		t.Fatal(err)
	}
	took(t, &r, t0, claim("c", exclusive))
}

func TestRevokeRun(t *testing.T) {
	var r Record
	took(t, &r, t0, claim("abc", exclusive))
	for range 2 {
		h, err := r.Revoke(t0, "ab", false)
		if err != nil || !h.Revoked || h.Token != "abc" {
			t.Fatalf("revoked %+v, %v", h, err)
		}
	}
	_, err := r.Renew(t0, "abc", 0)
	wants(t, "renew", err, backend.ErrRevoked)
	if h := took(t, &r, t0, claim("abc", exclusive)); !h.Revoked {
		t.Error("asking again hides that the hold is revoked")
	}
	busy(t, &r, at(9), claim("b", exclusive), 0)
	if err := r.Release(at(9), "abc"); err != nil {
		t.Errorf("release of a revoked hold: %v", err)
	}
	took(t, &r, at(9), claim("b", exclusive))
}

func TestRevokeAtOnce(t *testing.T) {
	detached := claim("a", exclusive)
	detached.Owner.Kind = backend.Detached
	for _, c := range []struct {
		name        string
		claim       Claim
		tail        time.Duration
		immediately bool
	}{
		{"a run's", claim("a", exclusive), 0, true},
		{"a detached one", detached, 0, false},
		{"a tail", claim("a", exclusive), sec, false},
	} {
		var r Record
		took(t, &r, t0, c.claim)
		if c.tail > 0 {
			if err := r.Leave(t0, "a", c.tail); err != nil {
				t.Fatal(err)
			}
		}
		if h, err := r.Revoke(t0, "a", c.immediately); err != nil || h.Token != "a" {
			t.Errorf("%s: revoked %+v, %v", c.name, h, err)
		}
		took(t, &r, t0, claim("b", exclusive))
	}
}

func TestRevokePrefix(t *testing.T) {
	var r Record
	for _, token := range []string{"ab1", "ab2", "c"} {
		took(t, &r, t0, claim(token, shared))
	}
	busy(t, &r, t0, claim("waiter", exclusive), 0)
	for prefix, want := range map[string]error{
		"":       backend.ErrInvalid,
		"ab":     backend.ErrInvalid,
		"ab3":    backend.ErrLost,
		"cc":     backend.ErrLost,
		"waiter": backend.ErrLost,
	} {
		_, err := r.Revoke(t0, prefix, true)
		wants(t, "revoke "+prefix, err, want)
	}
	if len(r.Holders) != 3 {
		t.Errorf("%d holders left, want 3", len(r.Holders))
	}
}

func TestFence(t *testing.T) {
	var r Record
	next := func(seed uint64) uint64 {
		c := claim("a", exclusive)
		c.Seed = seed
		h := took(t, &r, t0, c)
		if err := r.Release(t0, "a"); err != nil {
			t.Fatal(err)
		}
		return h.Fence
	}
	for _, c := range []struct{ raise, seed, want uint64 }{
		{0, 0, 1},
		{0, 900, 2}, // known, so the seed does not count
		{50, 0, 51},
		{20, 0, 52},
	} {
		r.RaiseFence(c.raise)
		if got := next(c.seed); got != c.want {
			t.Errorf("raised to %d, seed %d: fence %d, want %d", c.raise, c.seed, got, c.want)
		}
	}
	r = Record{}
	if got := next(900); got != 900 {
		t.Errorf("first fence %d, want the seed", got)
	}
}

func TestHugeTimesSaturate(t *testing.T) {
	var r Record
	c := claim("a", exclusive)
	c.TTL = math.MaxInt64
	late := forever - 1000
	if h := took(t, &r, late, c); h.Expires != forever {
		t.Errorf("expires at %d, want the last moment there is", h.Expires)
	}
	c.Token, c.Place = "b", math.MaxInt64
	busy(t, &r, late, c, 0)
	if err := r.Leave(late, "a", math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	busy(t, &r, forever-1, c, 0)
	if s := r.Status("x", t0); s.Holders[0].Left != math.MaxInt64/1000*1000 || s.Waiters[0].Waiting != 0 {
		t.Errorf("status %+v", s)
	}
}

func TestStatus(t *testing.T) {
	var r Record
	took(t, &r, t0, claim("a", exclusive))
	busy(t, &r, at(5), claim("b", shared), 0)
	before, _ := json.Marshal(r)

	want := backend.Status{
		Name:    "x",
		Fence:   500,
		Holders: []backend.Holder{r.Holders[0].Status(at(6))},
		Waiters: []backend.Waiter{{Owner: backend.Owner{Kind: backend.Run, User: "b"}, Mode: shared, Waiting: sec}},
	}
	if got := r.Status("x", at(6)); !reflect.DeepEqual(got, want) {
		t.Errorf("status %+v, want %+v", got, want)
	}
	if got := r.Status("x", at(25)); got.Holders != nil || got.Waiters != nil || got.Fence != 500 {
		t.Errorf("status after the end %+v, want nobody", got)
	}
	if after, _ := json.Marshal(r); string(after) != string(before) {
		t.Errorf("looking changed the record to %s", after)
	}
}

func TestJSONNames(t *testing.T) {
	var r Record
	took(t, &r, t0, claim("a", slots(2)))
	busy(t, &r, t0, claim("b", exclusive), 0)
	const want = `{"fence":500,` +
		`"holders":[{"token":"a","mode":{"kind":"slots","n":2},"owner":{"kind":"run","user":"a"},` +
		`"fence":500,"since":1000000,"ttl":10000000000,"expires":11000000}],` +
		`"queue":[{"token":"b","mode":{"kind":"exclusive"},"owner":{"kind":"run","user":"b"},` +
		`"since":1000000,"ttl":10000000000,"expires":21000000}]}`
	if got, err := json.Marshal(r); err != nil || string(got) != want {
		t.Errorf("stored as %s, %v\nwant %s", got, err, want)
	}
}
