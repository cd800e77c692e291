package redis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest/redistest"
	"github.com/dlock/dlock/backend/record"
	"github.com/dlock/dlock/internal/boottime"
)

// TestScriptsFollowTheModel runs random operations on one lock against the scripts and
// against package record, and compares every answer, message and state. Time is real:
// the model is told the server's, and a history ends when an operation comes so close
// to an expiry that the two may rightly differ.
func TestScriptsFollowTheModel(t *testing.T) {
	const parallel = 24
	histories := 8
	if os.Getenv("DLOCK_FULL") != "" {
		histories = 200
	}
	server := redistest.Start(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var total stats
	if failure := runHistories(t, server.Addr(), seed, parallel, histories, &total); failure != "" {
		t.Error(failure)
	}
	t.Logf("%d operations, %d offers, %d holds by asking, %d expiries, %d foreign holds, %d deletions",
		total.ops.Load(), total.offers.Load(), total.grants.Load(), total.expiries.Load(), total.foreign.Load(), total.deletions.Load())
	for what, n := range map[string]*atomic.Int64{"offers": &total.offers, "expiries": &total.expiries, "foreign holds": &total.foreign} {
		if n.Load() == 0 {
			t.Errorf("no %s: the test shows nothing", what)
		}
	}
}

// runHistories runs histories of one seed until one fails, and returns its failure.
func runHistories(t *testing.T, addr string, seed uint64, parallel, each int, total *stats) string {
	var failure atomic.Pointer[string]
	var all sync.WaitGroup
	for p := range parallel {
		all.Go(func() {
			for i := range each {
				h := newHistory(t, addr, rand.New(rand.NewPCG(seed, uint64(p*each+i))), total)
				h.run(80)
				h.close()
				if h.failure != "" {
					failure.CompareAndSwap(nil, &h.failure)
				}
				if failure.Load() != nil {
					return
				}
			}
		})
	}
	all.Wait()
	if f := failure.Load(); f != nil {
		return *f
	}
	return ""
}

// TestTheModelFindsWrongScripts breaks the scripts in one place at a time: each must be
// found, or the comparison shows nothing.
func TestTheModelFindsWrongScripts(t *testing.T) {
	server := redistest.Start(t)
	for what, m := range map[string]struct {
		file     *string
		old, new string
	}{
		"a release wakes nobody":             {&releaseLua, "promote()", ""},
		"a full lease in place of an offer":  {&lockLua, "math.min(w.t, OFFER), true)", "w.t)"},
		"ended shared holds stay":            {&lockLua, "redis.call('zrangebyscore', HOLDS, '-inf', now)", "{}"},
		"one slot too many":                  {&lockLua, "S.holders < n", "S.holders <= n"},
		"newcomers pass the line":            {&takeLua, "waiters == 0 and admits(mode, n)", "admits(mode, n)"},
		"a tail can be renewed":              {&lockLua, "return not h.d and h or nil", "return h"},
		"a renewal shortens":                 {&lockLua, "if ms > left then redis.call('pexpireat'", "if true then redis.call('pexpireat'"},
		"a revoked hold leaves a tail":       {&lockLua, "if ms > 0 and not h.r then", "if ms > 0 then"},
		"shared holds last as the shortest":  {&lockLua, "redis.call('zrange', HOLDS, -1, -1, 'withscores')", "redis.call('zrange', HOLDS, 0, 0, 'withscores')"},
		"a release asks for no token":        {&lockLua, "if S.value == token then", "if S.kind == 'own' then"},
		"a fence stands still":               {&lockLua, "redis.call('hincrby', META, 'f', 1)", "tonumber(meta.f)"},
		"who does not hear loses its place":  {&lockLua, "      redis.call('zadd', PLACES, 'lt', now + UNHEARD, token)\n      at = at + 1\n    end", "      drop_waiter(token, w)\n    end"},
		"places in line do not end":          {&lockLua, "ipairs(gone)", "ipairs({})"},
		"the last waiter is the first to go": {&lockLua, "redis.call('zrange', QUEUE, at, at)", "redis.call('zrevrange', QUEUE, at, at)"},
	} {
		t.Run(what, func(t *testing.T) {
			defer reloadScripts(m.file, *m.file)
			if !strings.Contains(*m.file, m.old) {
				t.Fatalf("the scripts have no %q", m.old)
			}
			reloadScripts(m.file, strings.Replace(*m.file, m.old, m.new, 1))
			for range 20 {
				if runHistories(t, server.Addr(), rand.Uint64(), 24, 8, new(stats)) != "" {
					return
				}
			}
			t.Error("the model did not find it")
		})
	}
}

// reloadScripts gives a script file another text.
func reloadScripts(file *string, text string) {
	*file = text
	takeScript, renewScript, releaseScript = newScript(&takeLua), newScript(&renewLua), newScript(&releaseLua)
	leaveScript, attachScript = newScript(&leaveLua), newScript(&attachLua)
	revokeScript, inspectScript = newScript(&revokeLua), newScript(&inspectLua)
}

// stats counts what the histories went through.
type stats struct{ ops, offers, grants, expiries, foreign, deletions atomic.Int64 }

// history is one lock, in Redis and in the model.
type history struct {
	t      *testing.T
	random *rand.Rand
	b      *Backend
	name   string
	keys   lockKeys
	sub    *redis.PubSub
	rec    record.Record
	hears  map[string]bool
	tokens []string
	kinds  map[string]backend.OwnerKind
	told   []string // messages that the model sent in this operation
	log    []string
	stats  *stats
	over   bool // an expiry was too close, or it failed

	failure string // the first one
}

func newHistory(t *testing.T, addr string, random *rand.Rand, s *stats) *history {
	h := &history{
		t: t, random: random, name: uuid.NewString(), stats: s,
		b:     New(Options{Namespace: "model", Addrs: []string{addr}}),
		hears: map[string]bool{}, kinds: map[string]backend.OwnerKind{},
	}
	h.keys, _ = h.b.keys(h.name, "")
	h.sub = h.b.client.Subscribe(t.Context(), h.marker())
	h.confirm()
	for range 5 {
		token := uuid.NewString()
		h.tokens = append(h.tokens, token)
		h.kinds[token] = backend.Run
		if random.IntN(3) == 0 {
			h.kinds[token] = backend.Detached
		}
		if random.IntN(4) > 0 {
			h.setHears(token, true)
		}
	}
	return h
}

func (h *history) close() {
	h.sub.Close()
	h.b.Close()
}

func (h *history) marker() string { return "marker:" + h.name }

// confirm reads until the server has confirmed the last change of the subscriptions.
func (h *history) confirm() {
	for {
		msg, err := h.sub.Receive(h.t.Context())
		if err != nil {
			h.fail("receive: %v", err)
			return
		}
		if _, ok := msg.(*redis.Subscription); ok {
			return
		}
	}
}

func (h *history) run(steps int) {
	ops := []func(){
		h.take, h.take, h.take, h.wait, h.wait, h.wait, h.renew, h.renew, h.release, h.release,
		h.leave, h.tail, h.revoke, h.foreign, h.remove, h.hear, h.hear, h.pass, h.pass, h.pass,
	}
	for range steps {
		h.told = nil
		ops[h.random.IntN(len(ops))]()
		if h.over {
			return
		}
		h.stats.ops.Add(1)
		h.compare()
		if h.over {
			return
		}
	}
}

func (h *history) fail(format string, args ...any) {
	h.over = true
	if h.failure == "" {
		h.failure = fmt.Sprintf("%s\nhistory:\n%s", fmt.Sprintf(format, args...), strings.Join(h.log, "\n"))
	}
}

func (h *history) token() string { return h.tokens[h.random.IntN(len(h.tokens))] }
func (h *history) ms(from, to int) time.Duration {
	return time.Duration(from+h.random.IntN(to-from)) * time.Millisecond
}

// call runs a script and returns its reply and the server's time, at which it ran.
func (h *history) call(s script, token string, args ...any) (reply, record.Time, uint64) {
	k, _ := h.b.keys(h.name, token)
	sent := boottime.Now()
	r, err := h.b.run(h.t.Context(), s, k, args...)
	took := boottime.Now().Sub(sent)
	if err != nil {
		h.fail("%v: %v", args, err)
		return nil, 0, 0
	}
	micros := r.fence(1)
	h.log = append(h.log, fmt.Sprintf("%d %v -> %v", micros/1000, args, r))
	return r, h.at(micros, took), micros
}

// at is the moment as the scripts see it, in whole milliseconds. The history is over
// if something ends very near: the server judges expiries by when a script began, and may
// have been held up before it looked at the clock, for no longer than the call took.
func (h *history) at(micros uint64, took time.Duration) record.Time {
	now := record.Time(micros / 1000 * 1000)
	near := 6*time.Millisecond + took
	ends := func(e record.Time) bool { return e != 0 && e.Sub(now)+now.Sub(e) < near }
	if slices.ContainsFunc(h.rec.Holders, func(o record.Holder) bool { return ends(o.Expires) }) ||
		slices.ContainsFunc(h.rec.Queue, func(w record.Waiter) bool { return ends(w.Expires) }) {
		h.over = true
	}
	before := len(h.rec.Holders)
	h.rec.Expire(now)
	h.stats.expiries.Add(int64(before - len(h.rec.Holders)))
	return now
}

func (h *history) push() record.Push {
	return record.Push{
		Offer: time.Second, Unheard: 2 * time.Second,
		Hears: func(token string) bool { return h.hears[token] },
		Tell: func(token string, offered bool) {
			kind := "h"
			if offered {
				kind = "g"
				h.stats.offers.Add(1)
			}
			h.told = append(h.told, kind+" "+token)
		},
	}
}

func (h *history) take() { h.claim(0) }
func (h *history) wait() { h.claim(h.ms(60, 400)) }

func (h *history) claim(place time.Duration) {
	token, ttl := h.token(), h.ms(60, 400)
	m := []backend.Mode{{Kind: backend.Exclusive}, {Kind: backend.Exclusive}, {Kind: backend.Shared}, {Kind: backend.Slots, N: 2}, {Kind: backend.Slots, N: 3}}[h.random.IntN(5)]
	r, now, micros := h.call(takeScript, token, token, h.name, "{}", string(h.kinds[token]), string(m.Kind), m.N, ttl.Milliseconds(), place.Milliseconds())
	if h.over {
		return
	}
	held := slices.IndexFunc(h.rec.Holders, func(o record.Holder) bool { return o.Token == token })
	c := record.Claim{Token: token, Mode: m, Owner: backend.Owner{Kind: h.kinds[token]}, TTL: ttl, Leased: true, Seed: micros, Place: place}
	got, err := h.push().Take(&h.rec, now, c)
	if held >= 0 && err == nil { // asked again, which is a renewal too
		got, err = h.rec.Renew(now, token, ttl)
	}
	busy := (*backend.BusyError)(nil)
	switch {
	case err == nil:
		h.stats.grants.Add(1)
		h.expect("held", r.status())
		h.expect(got.Fence, r.fence(2))
		h.near(got.Expires.Sub(now), r.ms(3))
	case errors.As(err, &busy):
		h.expect("busy", r.status())
		h.expect(int64(busy.Ahead), r.number(2))
		h.expect(len(busy.Holders), len(r.list(6)))
	case errors.Is(err, backend.ErrDenied):
		h.expect("unheard", r.status())
	default:
		h.refused(err, r)
	}
}

func (h *history) renew() {
	token, ttl := h.token(), h.ms(60, 400)
	if h.random.IntN(4) == 0 {
		ttl = 0
	}
	r, now, _ := h.call(renewScript, token, token, ttl.Milliseconds())
	if h.over {
		return
	}
	got, err := h.rec.Renew(now, token, ttl)
	if err != nil {
		h.refused(err, r)
		return
	}
	h.expect(got.Fence, r.fence(2))
	h.near(got.Expires.Sub(now), r.ms(3))
}

func (h *history) release() { h.end(0) }
func (h *history) tail()    { h.end(h.ms(60, 400)) }

func (h *history) end(tail time.Duration) {
	token := h.token()
	r, now, micros := h.call(releaseScript, token, token, tail.Milliseconds())
	if h.over {
		return
	}
	if err := h.rec.Leave(now, token, tail); err != nil {
		h.refused(err, r)
		return
	}
	h.expect("done", r.status())
	h.push().Promote(&h.rec, now, micros)
}

func (h *history) leave() {
	token := h.token()
	_, now, micros := h.call(leaveScript, token, token, 0)
	if h.over {
		return
	}
	h.rec.Quit(token)
	_ = h.rec.Release(now, token) // whichever it was
	h.push().Promote(&h.rec, now, micros)
}

func (h *history) revoke() {
	token, immediately := h.token(), h.random.IntN(3) == 0
	r, now, micros := h.call(revokeScript, "", token[:8], flag(immediately))
	if h.over {
		return
	}
	before := len(h.rec.Holders)
	if len(h.rec.Holders) == 1 && h.rec.Holders[0].Owner.Kind == backend.Foreign {
		h.expect("foreign", r.status())
		return
	}
	got, err := h.rec.Revoke(now, token[:8], immediately)
	if err != nil {
		h.refused(err, r)
		return
	}
	h.expect(got.Token, r.list(2).text(0))
	if len(h.rec.Holders) < before {
		h.push().Promote(&h.rec, now, micros)
	}
}

// foreign lets a program that knows nothing of us take the lock.
func (h *history) foreign() {
	ttl := h.ms(60, 200)
	h.call(inspectScript, "")
	before := len(h.rec.Holders)
	ok, err := h.b.client.SetNX(h.t.Context(), h.keys[keyLock], "somebody", ttl).Result()
	if err != nil {
		h.fail("SET NX: %v", err)
		return
	}
	h.call(inspectScript, "")
	if h.over = h.over || len(h.rec.Holders) != before; h.over {
		return // a hold ended about when SET ran
	}
	h.log = append(h.log, fmt.Sprintf("foreign %v", ok))
	h.expect(len(h.rec.Holders) == 0, ok)
	if ok {
		h.stats.foreign.Add(1)
		h.rec.Holders = []record.Holder{{
			Mode: backend.Mode{Kind: backend.Exclusive}, Owner: backend.Owner{Kind: backend.Foreign}, Expires: h.expiry(),
		}}
	}
}

// expiry is when the key ends, by the server's word.
func (h *history) expiry() record.Time {
	at, err := h.b.client.PExpireTime(h.t.Context(), h.keys[keyLock]).Result()
	if err != nil {
		h.fail("PEXPIRETIME: %v", err)
	}
	if at < 0 {
		h.over = true // it has ended already
	}
	return record.Time(at.Milliseconds()) * 1000
}

// remove deletes the lock, as somebody might by hand.
func (h *history) remove() {
	if h.random.IntN(3) > 0 {
		return
	}
	if err := h.b.client.Del(h.t.Context(), h.keys[keyLock]).Err(); err != nil {
		h.fail("DEL: %v", err)
	}
	h.stats.deletions.Add(1)
	h.log = append(h.log, "DEL")
	h.rec.Holders = nil
}

// hear lets a token begin or cease to listen.
func (h *history) hear() {
	token := h.token()
	h.setHears(token, !h.hears[token])
}

func (h *history) setHears(token string, hears bool) {
	change := h.sub.Subscribe
	if !hears {
		change = h.sub.Unsubscribe
	}
	if err := change(h.t.Context(), h.keys.channel(token)); err != nil {
		h.fail("subscribe: %v", err)
		return
	}
	h.confirm()
	h.hears[token] = hears
	h.log = append(h.log, fmt.Sprintf("%s hears: %v", token, h.hears[token]))
}

// pass lets time pass.
func (h *history) pass() { time.Sleep(h.ms(1, 150)) }

// compare holds messages and state against the model.
func (h *history) compare() {
	h.expect(strings.Join(h.told, "\n"), strings.Join(h.heard(), "\n"))
	r, now, _ := h.call(inspectScript, "")
	// Gaps for foreign programs are no part of the model.
	if err := h.b.client.HDel(h.t.Context(), h.keys[keyMeta], "fs").Err(); err != nil {
		h.fail("HDEL: %v", err)
	}
	if h.over {
		return
	}
	h.expect(h.rec.Fence, r.fence(3))
	h.expect(h.modelHolders(), h.realHolders(r.list(4)))
	for _, o := range h.rec.Holders {
		i := slices.IndexFunc(r.list(4), func(v any) bool { return reply(v.([]any)).text(0) == o.Token })
		if i >= 0 {
			h.near(o.Expires.Sub(now), r.list(4).list(i).ms(6))
		}
	}
	h.compareLine(now)
}

// heard reads what was published to the tokens since the last operation.
func (h *history) heard() []string {
	if err := h.b.client.Publish(h.t.Context(), h.marker(), "end").Err(); err != nil {
		h.fail("PUBLISH: %v", err)
	}
	var all []string
	for {
		msg, err := h.sub.Receive(h.t.Context())
		if err != nil {
			h.fail("receive: %v", err)
			return nil
		}
		m, ok := msg.(*redis.Message)
		switch {
		case !ok:
		case m.Channel == h.marker():
			return all
		case m.Payload != ownProbe:
			all = append(all, m.Payload[:1]+" "+m.Channel[len(m.Channel)-36:])
		}
	}
}

func (h *history) modelHolders() string {
	var list []string
	for _, o := range h.rec.Holders {
		list = append(list, fmt.Sprint(o.Token, o.Mode, o.Fence, o.Owner.Kind, o.Revoked, o.Tail, o.Offered))
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

func (h *history) realHolders(r reply) string {
	var list []string
	for i := range r {
		o := holder(r.list(i))
		list = append(list, fmt.Sprint(o.Token, o.Mode, o.Fence, o.Owner.Kind, o.Revoked, o.Tail, strings.Contains(r.list(i).text(7), "a")))
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// compareLine compares the waiters that have not ended, in order, with their places.
func (h *history) compareLine(now record.Time) {
	places := map[string]float64{}
	for _, z := range h.b.client.ZRangeWithScores(h.t.Context(), h.keys[keyPlaces], 0, -1).Val() {
		places[z.Member.(string)] = z.Score
	}
	var real, want []string
	for _, token := range h.b.client.ZRange(h.t.Context(), h.keys[keyQueue], 0, -1).Val() {
		if e := record.Time(places[token]) * 1000; e > now {
			real = append(real, fmt.Sprint(token, e))
		}
	}
	for _, w := range h.rec.Queue {
		want = append(want, fmt.Sprint(w.Token, w.Expires))
	}
	h.expect(strings.Join(want, "\n"), strings.Join(real, "\n"))
}

// refused compares what was refused.
func (h *history) refused(err error, r reply) {
	got := r.refusal()
	for _, kind := range []error{backend.ErrLost, backend.ErrRevoked, backend.ErrInvalid} {
		if errors.Is(err, kind) {
			if !errors.Is(got, kind) {
				h.fail("model: %v; Redis: %v", err, r)
			}
			return
		}
	}
	h.fail("model: %v; Redis: %v", err, r)
}

// near allows for the milliseconds between TIME and PTTL, on a busy machine.
func (h *history) near(want, got time.Duration) {
	if d := want - got; d < -25*time.Millisecond || d > 25*time.Millisecond {
		h.fail("model: %v left; Redis: %v", want, got)
	}
}

func (h *history) expect(want, got any) {
	if want != got {
		h.fail("model:\n%v\nRedis:\n%v", want, got)
	}
}
