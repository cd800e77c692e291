package redlock

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/redis"
)

// Inspect reports on locks as a majority of the servers knows them, and names the servers
// that do not answer. Without names it lists those of the servers' indexes, which hold
// what was used in the last month.
func (b *Backend) Inspect(ctx context.Context, names ...string) ([]backend.Status, error) {
	listed := len(names) == 0
	if listed {
		answers, err := look(ctx, b, func(ctx context.Context, n *redis.Node) ([]string, error) { return n.Names(ctx) })
		if err != nil {
			return nil, err
		}
		for _, a := range answers {
			names = append(names, a.value...)
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	for _, name := range names {
		if err := b.nodes[0].Check(name); err != nil {
			return nil, err
		}
	}
	var list []backend.Status
	for some := range slices.Chunk(names, redis.Batch) {
		answers, err := look(ctx, b, func(ctx context.Context, n *redis.Node) ([]redis.NodeStatus, error) { return n.Inspect(ctx, some) })
		if err != nil {
			return nil, err
		}
		for i, name := range some {
			s, err := b.status(name, of(answers, i))
			if err != nil && !listed {
				return nil, err
			}
			if s.Err = err; listed && err == nil && len(s.Holders)+len(s.Waiters) == 0 {
				continue
			}
			list = append(list, s)
		}
	}
	return list, nil
}

// of is what the servers said of the lock of that index.
func of(answers []answer[[]redis.NodeStatus], index int) []answer[redis.NodeStatus] {
	var list []answer[redis.NodeStatus]
	for _, a := range answers {
		one := answer[redis.NodeStatus]{seat: a.seat, err: a.err}
		if a.err == nil {
			one.value, one.err = a.value[index], a.value[index].Err
		}
		list = append(list, one)
	}
	return list
}

// look asks all servers, and waits a little for those that a majority is ahead of.
func look[T any](ctx context.Context, b *Backend, do func(context.Context, *redis.Node) (T, error)) ([]answer[T], error) {
	more := ask(b.seats(), requestLimit, do)
	answers, err := decide(ctx, b, more)
	if err != nil {
		return nil, err
	}
	late, cancel := context.WithTimeout(ctx, unmetLimit)
	defer cancel()
	answers, _ = collect(late, answers, more, len(b.nodes), func([]answer[T]) bool { return false })
	return answers, nil
}

func answersOf[T any](answers []answer[T]) map[int]error {
	m := map[int]error{}
	for _, a := range answers {
		m[a.seat] = a.err
	}
	return m
}

// missing says which servers did not answer, or with what error; nothing if all did.
func (b *Backend) missing(answers map[int]error) string {
	var words []string
	for i, n := range b.nodes {
		if err, ok := answers[i]; !ok {
			words = append(words, n.Address()+" does not answer")
		} else if err != nil {
			words = append(words, err.Error())
		}
	}
	if words == nil {
		return ""
	}
	return fmt.Sprintf("%d of the %d servers do not work: %s", len(words), len(b.nodes), strings.Join(words, "; "))
}

// status puts together what the servers say of a lock.
func (b *Backend) status(name string, answers []answer[redis.NodeStatus]) (backend.Status, error) {
	s := backend.Status{Name: name}
	if err := b.judge(errorsOf(b, answers), count(answers)); err != nil {
		return s, err
	}
	if missing := b.missing(answersOf(answers)); missing != "" {
		s.Problems = append(s.Problems, missing)
	}
	var lists [][]redis.NodeHolder
	for _, a := range answers {
		if a.err == nil {
			lists = append(lists, a.value.Holders)
			s.Fence = max(s.Fence, a.value.Fence)
		}
	}
	least := b.majority() - (len(b.nodes) - len(lists)) // those who are silent may know it too
	s.Holders, _ = b.merge(lists, least)
	s.Waiters = waiters(answers, least)
	if fence := lastFence(s.Holders); fence > 0 {
		s.Fence = fence // a server's own number may be ahead of what was given out
	}
	return s, nil
}

func lastFence(holders []backend.Holder) (last uint64) {
	for _, h := range holders {
		last = max(last, h.Fence)
	}
	return last
}

// waiters puts the lines of all servers into one.
func waiters(answers []answer[redis.NodeStatus], least int) []backend.Waiter {
	type place struct {
		redis.NodeWaiter
		seen int
	}
	places := map[string]*place{}
	for _, a := range answers {
		for _, w := range a.value.Waiters {
			p := places[w.Token]
			if p == nil {
				p = &place{w, 0}
				places[w.Token] = p
			}
			p.Waiting = max(p.Waiting, w.Waiting)
			p.seen++
		}
	}
	var line []*place
	for _, p := range places {
		if p.seen >= least {
			line = append(line, p)
		}
	}
	slices.SortFunc(line, func(a, b *place) int {
		return cmp.Or(cmp.Compare(a.Ticket, b.Ticket), strings.Compare(a.Token, b.Token))
	})
	var list []backend.Waiter
	for _, p := range line {
		list = append(list, p.Waiter)
	}
	return list
}
