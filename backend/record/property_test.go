package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"pgregory.net/rapid"
)

// belief is what one contender knows from the answers it got, and nothing else.
type belief struct {
	mode   backend.Mode
	until  Time // held, or tailed, until then; 0: without end
	placed Time // in line until then, if asked again before
	joined int  // order of joining the line
	state  int
}

const (
	outside = iota
	queued
	holding
	tailing
)

// world is a record with contenders that remember what they were told.
type world struct {
	r      Record
	now    Time
	last   uint64 // largest fence seen
	joins  int
	tokens []string
	who    map[string]*belief
}

var modes = []backend.Mode{exclusive, shared, slots(1), slots(2), slots(3)}

func newWorld() *world {
	w := &world{now: t0, who: map[string]*belief{}}
	for i := range 5 {
		token := fmt.Sprint("token", i)
		w.tokens = append(w.tokens, token)
		w.who[token] = &belief{}
	}
	return w
}

// settle makes the contenders forget what has ended.
func (w *world) settle() {
	for _, b := range w.who {
		switch {
		case b.state == queued && b.placed <= w.now,
			b.state >= holding && b.until != 0 && b.until <= w.now:
			*b = belief{}
		}
	}
}

func (w *world) draw(t *rapid.T) (string, *belief) {
	token := rapid.SampledFrom(w.tokens).Draw(t, "token")
	return token, w.who[token]
}

func seconds(t *rapid.T, from, to int, what string) time.Duration {
	return time.Duration(rapid.IntRange(from, to).Draw(t, what)) * sec
}

func (w *world) tick(t *rapid.T) {
	w.now = w.now.Add(seconds(t, 0, 6, "passes"))
	w.settle()
}

func (w *world) take(t *rapid.T) {
	token, b := w.draw(t)
	c := Claim{
		Token: token, Mode: rapid.SampledFrom(modes).Draw(t, "mode"), TTL: seconds(t, 1, 12, "ttl"),
		Leased: rapid.IntRange(0, 9).Draw(t, "leased") > 0, Seed: uint64(w.now), Place: seconds(t, 0, 12, "place"),
	}
	if b.state != outside && rapid.IntRange(0, 9).Draw(t, "same") > 0 {
		c.Mode = b.mode
	}
	before := slices.Clone(w.r.Holders)
	h, err := w.r.Take(w.now, c)
	var busy *backend.BusyError
	switch {
	case err == nil && b.state == holding:
		w.checkSame(t, before, h)
	case err == nil:
		w.checkTurn(t, token, c)
		w.checkFence(t, h)
		*b = belief{mode: c.Mode, until: h.Expires, state: holding}
	case errors.As(err, &busy):
		w.checkBusy(t, b, busy)
		w.queue(b, c)
	case errors.Is(err, backend.ErrLost):
		check(t, b.state == tailing, "take: lost in state %d", b.state)
	case errors.Is(err, backend.ErrInvalid):
		check(t, w.contradicts(b, c), "take: %v, which is not so", err)
	default:
		t.Fatalf("take: %v", err)
	}
}

// queue notes that c asked for a place.
func (w *world) queue(b *belief, c Claim) {
	if c.Place == 0 {
		return
	}
	if b.state != queued {
		w.joins++
		*b = belief{mode: c.Mode, joined: w.joins, state: queued}
	}
	b.placed = max(b.placed, w.now.Add(c.Place))
}

// contradicts tells whether c asks for another mode than before, or other slots than anyone.
func (w *world) contradicts(b *belief, c Claim) bool {
	if b.state != outside {
		return b.mode != c.Mode
	}
	for _, o := range w.who {
		if o.state != outside && o.mode.Kind == backend.Slots && c.Mode.Kind == backend.Slots && o.mode.N != c.Mode.N {
			return true
		}
	}
	return false
}

func (w *world) checkSame(t *rapid.T, before []Holder, h Holder) {
	check(t, slices.Contains(before, h), "asked again, got another hold: %+v", h)
	check(t, slices.Equal(live(before, w.now), w.r.Holders), "asking again changed the holders")
}

func live(hs []Holder, now Time) []Holder {
	return slices.DeleteFunc(slices.Clone(hs), func(h Holder) bool { return h.Expires.over(now) })
}

func (w *world) checkFence(t *rapid.T, h Holder) {
	check(t, h.Fence > w.last, "fence %d after %d", h.Fence, w.last)
	check(t, h.Fence == w.r.Fence, "fence %d given, %d recorded", h.Fence, w.r.Fence)
	w.last = h.Fence
}

// checkTurn: nobody who has kept its place is passed by one that shuts it out.
func (w *world) checkTurn(t *rapid.T, token string, c Claim) {
	me := w.who[token]
	for other, b := range w.who {
		ahead := b.state == queued && other != token && (me.state != queued || b.joined < me.joined)
		check(t, !ahead || b.mode == c.Mode && c.Mode != exclusive, "%s (%v) passed %s (%v)", token, c.Mode, other, b.mode)
	}
}

func (w *world) checkBusy(t *rapid.T, b *belief, busy *backend.BusyError) {
	check(t, b.state <= queued, "busy, but it holds")
	holders, ahead := 0, 0
	for _, o := range w.who {
		if o.state >= holding {
			holders++
		}
		if o.state == queued && (b.state != queued || o.joined < b.joined) {
			ahead++
		}
	}
	check(t, len(busy.Holders) == holders, "%d holders told, want %d", len(busy.Holders), holders)
	check(t, busy.Ahead == ahead, "%d ahead told, want %d", busy.Ahead, ahead)
	check(t, holders+ahead > 0, "busy, but by nobody")
}

func (w *world) renew(t *rapid.T) {
	token, b := w.draw(t)
	h, err := w.r.Renew(w.now, token, seconds(t, 0, 12, "ttl"))
	if errors.Is(err, backend.ErrRevoked) {
		check(t, w.r.holder(token).Revoked, "renew: revoked, but it is not")
		return
	}
	w.checkHeld(t, "renew", b, err)
	if err == nil {
		check(t, h.Expires >= b.until && (h.Expires == 0) == (b.until == 0), "renewed from %d to %d", b.until, h.Expires)
		b.until = h.Expires
	}
}

func (w *world) release(t *rapid.T) {
	token, b := w.draw(t)
	err := w.r.Release(w.now, token)
	w.checkHeld(t, "release", b, err)
	if err == nil {
		*b = belief{}
	}
}

func (w *world) leave(t *rapid.T) {
	token, b := w.draw(t)
	tail := seconds(t, 0, 12, "tail")
	revoked := w.r.holder(token) != nil && w.r.holder(token).Revoked
	err := w.r.Leave(w.now, token, tail)
	w.checkHeld(t, "leave", b, err)
	switch {
	case err != nil:
	case revoked || tail == 0:
		*b = belief{}
	default:
		b.state, b.until = tailing, w.now.Add(tail)
	}
}

func (w *world) checkHeld(t *rapid.T, what string, b *belief, err error) {
	if b.state == holding {
		check(t, err == nil, "%s by the holder: %v", what, err)
	} else {
		check(t, errors.Is(err, backend.ErrLost), "%s by a stranger: %v", what, err)
	}
}

func (w *world) revoke(t *rapid.T) {
	token, b := w.draw(t)
	now := rapid.Bool().Draw(t, "now")
	h, err := w.r.Revoke(w.now, token, now)
	if b.state < holding {
		check(t, errors.Is(err, backend.ErrLost), "revoke of nothing: %v", err)
		return
	}
	check(t, err == nil && h.Token == token, "revoke: %+v, %v", h, err)
	if now || b.state == tailing {
		*b = belief{}
	}
}

func (w *world) quit(t *rapid.T) {
	token, b := w.draw(t)
	w.r.Quit(token)
	if b.state == queued {
		*b = belief{}
	}
}

// restore stores the record and reads it back.
func (w *world) restore(t *rapid.T) {
	stored, err := json.Marshal(w.r)
	check(t, err == nil, "store: %v", err)
	var r Record
	check(t, json.Unmarshal(stored, &r) == nil, "read back: %s", stored)
	same := r.Fence == w.r.Fence && slices.Equal(r.Holders, w.r.Holders) && slices.Equal(r.Queue, w.r.Queue)
	check(t, same, "stored %+v\nread back %+v", w.r, r)
	w.r = r
}

// invariants compares the record with what the contenders believe.
func (w *world) invariants(t *rapid.T) {
	w.r.Expire(w.now)
	seen, inside, in := map[string]bool{}, []backend.Mode{}, map[int]bool{}
	for _, h := range w.r.Holders {
		b := w.who[h.Token]
		check(t, !seen[h.Token], "%s is there twice", h.Token)
		check(t, b.state >= holding && h.Tail == (b.state == tailing), "%s in state %d holds", h.Token, b.state)
		check(t, h.Expires == 0 || h.Expires > w.now, "%s has ended", h.Token)
		seen[h.Token], in[h.Mode.N] = true, true
	}
	for _, q := range w.r.Queue {
		check(t, !seen[q.Token], "%s is there twice", q.Token)
		check(t, w.who[q.Token].state == queued, "%s in state %d waits", q.Token, w.who[q.Token].state)
		check(t, q.Expires > w.now, "the place of %s has ended", q.Token)
		seen[q.Token], in[q.Mode.N] = true, true
	}
	for token, b := range w.who {
		check(t, seen[token] == (b.state != outside), "%s in state %d is unknown", token, b.state)
		if b.state >= holding {
			inside = append(inside, b.mode)
		}
	}
	delete(in, 0) // the N of exclusive and shared
	check(t, len(in) <= 1, "several numbers of slots in force: %v", in)
	check(t, together(inside), "they hold together: %v", inside)
}

// together says which modes may hold at the same time, in other words than the code.
func together(inside []backend.Mode) bool {
	if len(inside) < 2 {
		return true
	}
	switch first := inside[0]; first.Kind {
	case backend.Exclusive:
		return false
	case backend.Slots:
		if len(inside) > first.N {
			return false
		}
	}
	return len(slices.Compact(slices.Clone(inside))) == 1
}

func check(t *rapid.T, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf(format, args...)
	}
}

func TestAnySequenceKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		t.Repeat(map[string]func(*rapid.T){
			"tick": w.tick, "take": w.take, "take2": w.take, "take3": w.take, "renew": w.renew, "release": w.release,
			"leave": w.leave, "revoke": w.revoke, "quit": w.quit, "restore": w.restore, "": w.invariants,
		})
	})
}
