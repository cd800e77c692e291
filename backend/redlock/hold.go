package redlock

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/redis"
	"github.com/dlock/dlock/internal/boottime"
)

// hold is a lock that we have, or a detached one that we may speak for.
type hold struct {
	b     *Backend
	seats []*seat
	claim redis.Claim
	fence uint64
	lease backend.Lease // as granted; of a detached hold that was found, unknown
	// restores tells that the claim is complete, so that a server can be given it again.
	restores bool
	numbered bool // all servers were told the fence

	mu       sync.Mutex
	released bool
	until    boottime.Instant // when the last lease ends
}

// Grant tells token, fence and the lease as it was granted.
func (h *hold) Grant() backend.Grant {
	return backend.Grant{Token: h.claim.Token, Fence: h.fence, Lease: h.lease}
}

// Renew extends the lease if the token still holds the lock on a majority. Only after that
// is the hold given again to servers that have lost it: it could be raised from the dead.
func (h *hold) Renew(ctx context.Context) (backend.Lease, error) {
	sent := h.b.clock()
	more := ask(h.seats, limitOf(h.claim.TTL), func(ctx context.Context, n *redis.Node) (time.Duration, error) {
		return n.Renew(ctx, h.claim.Name, h.claim.Token, h.claim.TTL)
	})
	answers, err := decide(ctx, h.b, more)
	if err != nil {
		return backend.Lease{}, err
	}
	var left []time.Duration
	for _, a := range answers {
		if a.err == nil {
			left = append(left, a.value)
		}
	}
	lease := h.b.lease(sent, h.claim.TTL, left)
	if h.b.clock() >= lease.Deadline() {
		return backend.Lease{}, &unavailable{"a majority answered only when the lease had ended", nil}
	}
	h.mu.Lock()
	h.until = lease.Deadline()
	h.mu.Unlock()
	go h.restore(answers, more)
	return lease, nil
}

// restore gives the hold again to servers that said they do not have it, or will say so.
func (h *hold) restore(answers []answer[time.Duration], more <-chan answer[time.Duration]) {
	if !h.restores {
		return
	}
	for i := range h.seats {
		a := answer[time.Duration]{}
		if i < len(answers) {
			a = answers[i]
		} else {
			a = <-more
		}
		if h.b.name(a.seat, a.err); errors.Is(a.err, backend.ErrLost) {
			h.mend(a.seat, func(ctx context.Context, n *redis.Node) error { return n.Restore(ctx, h.claim, h.fence) })
		}
	}
}

// tidy brings servers in line with what a majority granted: those of these answers, and
// n that come later.
func (h *hold) tidy(answers []answer[redis.Answer], more <-chan answer[redis.Answer], n int) {
	for _, a := range answers {
		h.tidyOne(a)
	}
	for range n {
		h.tidyOne(<-more)
	}
}

func (h *hold) tidyOne(a answer[redis.Answer]) {
	switch {
	case a.err != nil:
		h.b.name(a.seat, a.err)
	case h.has(a) && (a.value.Fence == h.fence || h.numbered):
	case h.has(a):
		h.mend(a.seat, func(ctx context.Context, n *redis.Node) error { return n.Number(ctx, h.claim, h.fence) })
	case a.value.Held, h.claim.Place > 0: // another slot, or a place in line that is not needed any more
		h.mend(a.seat, func(ctx context.Context, n *redis.Node) error {
			return n.Leave(ctx, h.claim.Name, h.claim.Token, false)
		})
	}
}

// mend does something to a server's part of the hold, unless that is being released.
func (h *hold) mend(seat int, do func(context.Context, *redis.Node) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return
	}
	s := h.seats[seat]
	s.then(func() {
		_, _ = request(s, limitOf(h.claim.TTL), func(ctx context.Context, n *redis.Node) (struct{}, error) { return struct{}{}, do(ctx, n) })
	})
}

// stragglers is how long a release that a majority has done waits for the other servers,
// before they are left to a goroutine that goes on as long as this process and the lease.
func (h *hold) stragglers() time.Duration { return min(h.claim.TTL/20, leaveLimit) }

// Release gives the lock back on all servers. It tries until a majority has done so, or
// ctx ends, and goes on behind that for those which do not answer.
func (h *hold) Release(ctx context.Context, tail time.Duration) error {
	h.mu.Lock()
	h.released = true
	until := h.until
	h.mu.Unlock()
	more := make(chan answer[struct{}], len(h.seats))
	failed := make(chan answer[struct{}], len(h.seats)) // the latest failure of each
	for _, s := range h.seats {
		s.then(func() { h.releaseOn(s, tail, until, more, failed) })
	}
	var answers []answer[struct{}]
	failures := map[int]error{}
	ended, last := ctx.Done(), (<-chan time.Time)(nil)
	for v := (votes{}); v.yes < h.b.majority() && v.no < h.b.veto(); v = count(answers) {
		select {
		case a := <-more:
			answers = append(answers, a)
		case a := <-failed:
			failures[a.seat] = a.err
			h.b.name(a.seat, a.err)
		case <-ended: // what is under way gets a moment
			ended, last = nil, time.After(closeLimit)
		case <-last:
			return h.unreleased(failures)
		}
	}
	h.b.settle(h.seats, h.stragglers())
	return h.b.judge(errorsOf(h.b, answers), count(answers))
}

func (h *hold) unreleased(failures map[int]error) error {
	var errs []error
	for _, err := range failures {
		errs = append(errs, err)
	}
	if len(errs) == 0 {
		return &unavailable{h.b.opts.address() + " does not answer", nil}
	}
	return h.b.noMajority(errs)
}

// releaseOn tries to release on one server until it answers or the lease has ended. Once
// an answer went missing, "not held" is taken for what that try has done.
func (h *hold) releaseOn(s *seat, tail time.Duration, until boottime.Instant, said, failed chan answer[struct{}]) {
	sure := true
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		_, err := request(s, limitOf(h.claim.TTL), func(ctx context.Context, n *redis.Node) (struct{}, error) {
			return struct{}{}, n.Release(ctx, h.claim.Name, h.claim.Token, tail)
		})
		if errors.Is(err, backend.ErrLost) && !sure {
			err = nil
		}
		if err == nil || !redis.Passing(err) {
			said <- answer[struct{}]{s.index, struct{}{}, err}
			return
		}
		select {
		case failed <- answer[struct{}]{s.index, struct{}{}, err}:
		default:
		}
		sure = sure && redis.Answered(err)
		if h.b.clock() >= until {
			return
		}
		select {
		case <-h.b.done:
			return
		case <-time.After(pause):
		}
	}
}

// Lost is nil: Redis does not tell.
func (h *hold) Lost() <-chan error { return nil }

// KeepOpen lists nothing: the lock is elsewhere.
func (h *hold) KeepOpen() []*os.File { return nil }
