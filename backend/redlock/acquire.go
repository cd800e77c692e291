package redlock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/redis"
	"github.com/dlock/dlock/internal/boottime"
)

const (
	serviceLimit = 60 * time.Second       // how long a wait goes on while the service does not work
	firstLimit   = 300 * time.Millisecond // that the first attempt gets in any case
	firstPause   = 50 * time.Millisecond
	lastPause    = time.Second
	splitPause   = 20 * time.Millisecond // at most, times the number of the attempt
	splitLimit   = 8                     // attempts in which the votes are split before that counts as busy
	lateLimit    = 50 * time.Millisecond // for those who know whether the votes are split
)

// contender is one wish for a lock, from its start until it is granted or given up.
type contender struct {
	b     *Backend
	req   backend.Request
	seats []*seat
	claim redis.Claim

	answered boottime.Instant // when the service last did its work
	busy     busy             // the last answer that somebody else has the lock
}

// Acquire takes the lock, or waits in line for it.
func (b *Backend) Acquire(ctx context.Context, req backend.Request) (backend.Hold, error) {
	if uuid.Validate(req.Token) != nil || !req.Mode.Valid() {
		return nil, fmt.Errorf("%w: token %q, mode %q", backend.ErrInvalid, req.Token, req.Mode)
	}
	if err := b.nodes[0].Check(req.Name); err != nil {
		return nil, err
	}
	owner, err := json.Marshal(req.Owner)
	if err != nil {
		return nil, fmt.Errorf("owner: %w", err)
	}
	kind := backend.Run
	if req.Detached {
		kind = backend.Detached
	}
	c := &contender{b: b, req: req, seats: b.seats(), answered: b.clock(), claim: redis.Claim{
		Name: req.Name, Token: req.Token, Owner: string(owner), Kind: kind, Mode: req.Mode, TTL: req.TTL,
	}}
	h, err := c.acquire(ctx)
	if err != nil {
		c.withdraw()
		return nil, err
	}
	return h, nil
}

func (c *contender) acquire(ctx context.Context) (*hold, error) {
	first, cancel := redis.AtLeast(ctx, firstLimit)
	defer cancel()
	h, err := c.ask(first)
	if busy := (*backend.BusyError)(nil); !errors.As(err, &busy) || !c.req.Waits(busy.Holders) {
		return h, err
	} else if c.req.Waiting != nil {
		if err := c.req.Waiting(backend.Wait{Holders: busy.Holders, Ahead: busy.Ahead}); err != nil {
			return nil, err
		}
	}
	return c.wait(ctx)
}

// ask makes attempts until one has a result: after a random pause if the votes were split,
// and where the service does not work, if the contender waits, for some time.
func (c *contender) ask(ctx context.Context) (*hold, error) {
	c.claim.Slot = 0
	var tried []int
	for n, pause := 1, firstPause; ; n++ {
		h, err := c.attempt(ctx)
		wait := rand.N(time.Duration(n) * splitPause)
		if split := (*splitError)(nil); errors.As(err, &split) {
			if tried = append(tried, c.claim.Slot); n >= splitLimit {
				return nil, c.busy.error()
			}
			if c.claim.Slot = split.next(tried); c.claim.Slot > 0 {
				wait = 0
			} else {
				tried = nil
			}
		} else if err == nil || !redis.Passing(err) || c.req.NoWait || c.b.clock().Sub(c.answered) >= serviceLimit {
			return h, err
		} else {
			wait, pause = pause/2+rand.N(pause/2), min(2*pause, lastPause)
		}
		select {
		case <-ctx.Done():
			return nil, &unavailable{err.Error(), []error{err, context.Cause(ctx)}}
		case <-time.After(wait):
		}
	}
}

// attempt asks all servers once. What a majority does not grant is given back.
func (c *contender) attempt(ctx context.Context) (*hold, error) {
	sent, claim := c.b.clock(), c.claim
	more := ask(c.seats, limitOf(claim.TTL), func(ctx context.Context, n *redis.Node) (redis.Answer, error) {
		return n.Take(ctx, claim)
	})
	for _, s := range c.seats {
		s.claimed.Store(true)
	}
	answers, err := collect(ctx, nil, more, len(c.seats), c.b.enough)
	if err == nil && held(answers) < c.b.majority() {
		late, cancel := context.WithTimeout(ctx, lateLimit)
		defer cancel()
		answers, _ = collect(late, answers, more, len(c.seats), c.b.certain)
	}
	errs := errorsOf(c.b, answers)
	if err != nil && count(answers).yes == 0 {
		err = &unavailable{c.b.opts.address() + " does not answer", []error{err}}
	}
	if err == nil {
		err = c.result(answers, errs)
	}
	if err == nil {
		h := c.hold(sent, answers)
		if err = h.agree(ctx, answers); err == nil {
			c.answered = c.b.clock()
			go h.tidy(answers, more, len(c.seats)-len(answers))
			return h, nil
		}
	}
	c.giveBack(claim, answers)
	return nil, err
}

// enough tells whether the answers decide.
func (b *Backend) enough(answers []answer[redis.Answer]) bool {
	yes, v := held(answers), count(answers)
	return yes >= b.majority() || v.failed >= b.veto() || v.no >= b.veto() || len(answers)-yes >= b.veto()
}

// certain tells whether the answers show why there is no majority.
func (b *Backend) certain(answers []answer[redis.Answer]) bool {
	v := count(answers)
	return v.failed >= b.veto() || v.no >= b.veto() || len(answers) >= b.majority() && b.busy(answers).taken
}

func held(answers []answer[redis.Answer]) (n int) {
	for _, a := range answers {
		if a.err == nil && a.value.Held {
			n++
		}
	}
	return n
}

// result is nil where a majority has granted the lock, and one and the same slot of it.
func (c *contender) result(answers []answer[redis.Answer], errs []error) error {
	yes, v := held(answers), count(answers)
	if yes >= c.b.majority() {
		if c.slot(answers) < 0 {
			c.busy = c.b.busy(answers)
			return newSplit(answers)
		}
		return nil
	}
	switch {
	case v.no >= c.b.veto():
		return c.b.refusal(errs)
	case v.no+v.failed >= c.b.veto():
		return c.b.noMajority(errs)
	}
	c.answered, c.busy = c.b.clock(), c.b.busy(answers)
	split := newSplit(answers)
	if c.busy.ahead == 0 && split.slots != nil || c.busy.split() && c.claim.Place == 0 {
		return split
	}
	return c.busy.error()
}

// slot is the one that a majority granted; 0 in modes that have none, below 0 if there is
// no such majority.
func (c *contender) slot(answers []answer[redis.Answer]) int {
	granted := map[int]int{}
	for _, a := range answers {
		if a.err == nil && a.value.Held {
			if granted[a.value.Slot]++; granted[a.value.Slot] >= c.b.majority() {
				return a.value.Slot
			}
		}
	}
	return -1
}

// splitError says that nobody has a majority.
type splitError struct {
	slots map[int]int // how many servers would give, or have given, which slot
}

// Error is never shown: at last the lock counts as busy.
func (*splitError) Error() string { return "the votes are split" }

func newSplit(answers []answer[redis.Answer]) *splitError {
	var e splitError
	for _, a := range answers {
		if a.err == nil && a.value.Slot > 0 {
			if e.slots == nil {
				e.slots = map[int]int{}
			}
			e.slots[a.value.Slot]++
		}
	}
	return &e
}

// next is the slot that most would give, and that was not asked for yet; 0 if none.
func (e *splitError) next(tried []int) (slot int) {
	for s, n := range e.slots {
		if !slices.Contains(tried, s) && (slot == 0 || n > e.slots[slot] || n == e.slots[slot] && s < slot) {
			slot = s
		}
	}
	return slot
}

// giveBack ends what servers have granted in vain, or may still grant; a place in line stays.
func (c *contender) giveBack(claim redis.Claim, answers []answer[redis.Answer]) {
	refused := map[int]bool{}
	for _, a := range answers {
		refused[a.seat] = redis.Answered(a.err) && !a.value.Held
	}
	for _, s := range c.seats {
		if refused[s.index] {
			continue
		}
		s.then(func() {
			_, _ = request(s, limitOf(claim.TTL), func(ctx context.Context, n *redis.Node) (struct{}, error) {
				if claim.Place > 0 {
					return struct{}{}, n.Yield(ctx, claim)
				}
				return struct{}{}, n.Leave(ctx, claim.Name, claim.Token, false)
			})
		})
	}
}

// withdraw leaves the line, and gives back what was granted unnoticed. A request that is
// still on its way will find its token withdrawn.
func (c *contender) withdraw() {
	for _, s := range c.seats {
		if !s.claimed.Load() {
			continue
		}
		s.then(func() {
			if !s.node.Connected() {
				return // nothing was ever sent
			}
			// If this fails too, a place in line or one lease is left, which ends by itself.
			_, _ = request(s, leaveLimit, func(ctx context.Context, n *redis.Node) (struct{}, error) {
				return struct{}{}, n.Leave(ctx, c.claim.Name, c.claim.Token, s.unanswered.Load())
			})
		})
	}
	c.b.settle(c.seats, leaveLimit)
}

// hold turns the answers of a majority into the hold that they grant, with a lease from
// when it was asked for.
func (c *contender) hold(sent boottime.Instant, answers []answer[redis.Answer]) *hold {
	var left []time.Duration
	h := &hold{b: c.b, seats: c.seats, claim: c.claim, restores: true}
	h.claim.Slot = c.slot(answers)
	for _, a := range answers {
		if h.has(a) {
			h.fence, left = max(h.fence, a.value.Fence), append(left, a.value.TTL)
		}
	}
	h.lease = c.b.lease(sent, c.req.TTL, left)
	h.until = h.lease.Deadline()
	return h
}

// has tells whether a server has granted this hold.
func (h *hold) has(a answer[redis.Answer]) bool {
	return a.err == nil && a.value.Held && a.value.Slot == h.claim.Slot
}

// lease is the one that servers grant together which grant those times each.
func (b *Backend) lease(sent boottime.Instant, ttl time.Duration, left []time.Duration) backend.Lease {
	slices.Sort(left)
	return backend.Lease{Sent: sent, TTL: left[len(left)-b.majority()], Every: ttl / 3}
}

// agree gives the hold a fence that a majority knows, so that each later majority knows it
// or a larger one, and sees to it that enough of the lease is left after that.
func (h *hold) agree(ctx context.Context, answers []answer[redis.Answer]) error {
	known := 0
	for _, a := range answers {
		if h.has(a) && a.value.Fence == h.fence {
			known++
		}
	}
	if h.numbered = known < h.b.majority(); h.numbered {
		_, err := decide(ctx, h.b, ask(h.seats, limitOf(h.claim.TTL), func(ctx context.Context, n *redis.Node) (struct{}, error) {
			return struct{}{}, n.Number(ctx, h.claim, h.fence)
		}))
		if errors.Is(err, backend.ErrLost) {
			err = &unavailable{"the lock was lost before a majority knew its number", []error{}}
		}
		if err != nil {
			return err
		}
	}
	if took, left := h.b.clock().Sub(h.lease.Sent), h.lease.Deadline().Sub(h.b.clock()); left < h.claim.TTL/3 {
		return &unavailable{fmt.Sprintf("%s: a majority took %v to grant a lease of %v, which leaves too little of it: "+
			"a longer --ttl helps", h.b.opts.address(), took.Round(time.Millisecond), h.claim.TTL), nil}
	}
	return nil
}
