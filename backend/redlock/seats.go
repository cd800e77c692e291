package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock/dlock/backend/redis"
)

const (
	requestLimit = 2 * time.Second // of a request to one server, where no lease makes it shorter
	leaveLimit   = 500 * time.Millisecond
	unmetLimit   = 100 * time.Millisecond // for a server that has never answered
	closeLimit   = 100 * time.Millisecond // for requests that nobody waits for
)

// limitOf is how long one server may take to answer a request about a lease of ttl.
func limitOf(ttl time.Duration) time.Duration { return min(ttl/4, requestLimit) }

// seat is the dealings of one contender or holder with one server: one request at a time,
// so that what calls an earlier one off cannot overtake it.
type seat struct {
	index int
	node  *node

	mu   sync.Mutex
	last chan struct{} // closed when the last request has ended

	// Of the claim, known when no request is under way:
	claimed    atomic.Bool // the server may have something of ours
	unanswered atomic.Bool // a request may yet arrive
}

func (b *Backend) seats() []*seat {
	var list []*seat
	ended := make(chan struct{})
	close(ended)
	for i, n := range b.nodes {
		list = append(list, &seat{index: i, node: n, last: ended})
	}
	return list
}

// then does something when all that was begun before has ended. The channel is closed
// when it is done.
func (s *seat) then(do func()) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, done := s.last, make(chan struct{})
	s.last = done
	s.node.begin()
	go func() {
		defer s.node.end()
		defer close(done)
		<-before
		do()
	}()
	return done
}

// request makes a request of the server, which ends by itself, whoever waits for it.
func request[T any](s *seat, limit time.Duration, do func(context.Context, *redis.Node) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	v, err := do(ctx, s.node.Node)
	if err != nil && !redis.Answered(err) {
		s.unanswered.Store(true)
	}
	return v, err
}

// answer is what one server said.
type answer[T any] struct {
	seat  int
	value T
	err   error
}

// ask asks all servers at once. Each one's answer comes on the channel.
func ask[T any](seats []*seat, limit time.Duration, do func(context.Context, *redis.Node) (T, error)) <-chan answer[T] {
	answers := make(chan answer[T], len(seats))
	for _, s := range seats {
		s.then(func() {
			v, err := request(s, limit, do)
			answers <- answer[T]{s.index, v, err}
		})
	}
	return answers
}

// collect adds to answers until enough says so, n are there, or ctx ends.
func collect[T any](ctx context.Context, answers []answer[T], more <-chan answer[T], n int, enough func([]answer[T]) bool) ([]answer[T], error) {
	for len(answers) < n && !enough(answers) {
		select {
		case a := <-more:
			answers = append(answers, a)
		case <-ctx.Done():
			return answers, context.Cause(ctx)
		}
	}
	return answers, nil
}

// votes counts what servers said.
type votes struct{ yes, no, failed int }

func count[T any](answers []answer[T]) (v votes) {
	for _, a := range answers {
		switch {
		case a.err == nil:
			v.yes++
		case redis.Passing(a.err):
			v.failed++
		default:
			v.no++
		}
	}
	return v
}

// decide waits until a majority has said yes, or cannot any more: that error which the
// servers agree upon, or that they do not work.
func decide[T any](ctx context.Context, b *Backend, more <-chan answer[T]) ([]answer[T], error) {
	answers, err := collect(ctx, nil, more, len(b.nodes), func(as []answer[T]) bool {
		v := count(as)
		return v.yes >= b.majority() || v.no >= b.veto() || v.failed >= b.veto()
	})
	if err != nil {
		return answers, &unavailable{b.opts.address() + " does not answer", []error{err}}
	}
	return answers, b.judge(errorsOf(b, answers), count(answers))
}

// errorsOf lists the errors, and names who does not work.
func errorsOf[T any](b *Backend, answers []answer[T]) (errs []error) {
	for _, a := range answers {
		if b.name(a.seat, a.err); a.err != nil {
			errs = append(errs, a.err)
		}
	}
	return errs
}

// judge is the error of a request that no majority granted.
func (b *Backend) judge(errs []error, v votes) error {
	if v.yes >= b.majority() {
		return nil
	}
	if v.no >= b.veto() {
		return b.refusal(errs)
	}
	return b.noMajority(errs)
}

// settle waits a moment for what is under way, and longer for servers that have shown
// that they live.
func (b *Backend) settle(seats []*seat, longest time.Duration) {
	unmet, last := time.After(min(unmetLimit, longest)), time.After(longest)
	over := false
	for _, s := range seats {
		s.mu.Lock()
		ended := s.last
		s.mu.Unlock()
		for waiting := true; waiting; {
			if over && !s.node.Connected() {
				break
			}
			select {
			case <-ended:
				waiting = false
			case <-unmet:
				over = true
			case <-last:
				return
			}
		}
	}
}
