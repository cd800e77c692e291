package record

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/dlock/dlock/backend"
)

// The small world of the exhaustive search: three contenders, each in its own mode,
// and leases of a few ticks. It always is tick 100; what passes is subtracted from
// the ends. Every state that any order of steps can reach is visited once.

const (
	today = Time(100)
	tick  = 1000 // nanoseconds: one unit of Time
	crew  = 3
)

// small is one state of the world: the record, and until when each contender was told
// that it holds (or left a tail); 0 if it does not.
type small struct {
	r    Record
	held [crew]Time
}

type step struct {
	name string
	do   func(t *testing.T, s *small, modes []backend.Mode)
}

func name(i int) string { return string(rune('a' + i)) }

// steps are all that can happen next.
func steps() []step {
	all := []step{{"tick", func(_ *testing.T, s *small, _ []backend.Mode) { s.pass() }}}
	for i := range crew {
		token := name(i)
		all = append(all,
			step{"take " + token, func(t *testing.T, s *small, modes []backend.Mode) { s.take(t, i, modes[i]) }},
			step{"renew " + token, func(t *testing.T, s *small, _ []backend.Mode) {
				h, err := s.r.Renew(today, token, 0)
				s.answer(t, i, h.Expires, err)
			}},
			step{"release " + token, func(t *testing.T, s *small, _ []backend.Mode) {
				s.answer(t, i, 0, s.r.Release(today, token))
			}},
			step{"leave " + token, func(t *testing.T, s *small, _ []backend.Mode) {
				s.answer(t, i, today+1, s.r.Leave(today, token, tick))
			}},
			step{"quit " + token, func(_ *testing.T, s *small, _ []backend.Mode) { s.r.Quit(token) }},
		)
	}
	return all
}

// pass lets one tick go by. What has ended stays in the record: dropping it is the
// operations' affair.
func (s *small) pass() {
	for i := range s.r.Holders {
		s.r.Holders[i].Expires = max(s.r.Holders[i].Expires-1, today)
	}
	for i := range s.r.Queue {
		s.r.Queue[i].Expires = max(s.r.Queue[i].Expires-1, today)
	}
	for i, until := range s.held {
		if s.held[i] = until - 1; until <= today+1 {
			s.held[i] = 0
		}
	}
}

func (s *small) take(t *testing.T, i int, mode backend.Mode) {
	fence, held := s.r.Fence, s.held[i]
	h, err := s.r.Take(today, Claim{Token: name(i), Mode: mode, TTL: 2 * tick, Leased: true, Seed: 1, Place: 2 * tick})
	var busy *backend.BusyError
	switch {
	case err == nil:
		if held == 0 && h.Fence <= fence {
			t.Fatalf("fence %d after %d", h.Fence, fence)
		}
		s.held[i] = h.Expires
	case errors.As(err, &busy):
	default:
		s.answer(t, i, 0, err)
	}
}

// answer notes what contender i was told. Only one that had the lock may be told that
// it does, and one that has not left it must be.
func (s *small) answer(t *testing.T, i int, until Time, err error) {
	switch {
	case err == nil && s.held[i] == 0:
		t.Fatalf("%s has nothing, and is told that it has", name(i))
	case err == nil:
		s.held[i] = until
	case !errors.Is(err, backend.ErrLost):
		t.Fatal(err)
	case s.held[i] != 0 && !slices.ContainsFunc(s.r.Holders, func(h Holder) bool { return h.Token == name(i) && h.Tail }):
		t.Fatalf("%s holds, and is told that it has lost", name(i))
	}
}

// exclusion fails if contenders that cannot hold together believe that they do.
func (s *small) exclusion(t *testing.T, modes []backend.Mode) {
	var inside []backend.Mode
	for i, until := range s.held {
		if until > 0 {
			inside = append(inside, modes[i])
		}
	}
	if !together(inside) {
		t.Fatalf("they hold together: %v", inside)
	}
}

// alive fails if some contender can be shut out for ever: asking again on each tick, it
// must get in once the others fall silent, and at once if it is first in a free lock.
func (s *small) alive(t *testing.T, modes []backend.Mode) {
	for i := range crew {
		quiet := s.clone()
		quiet.r.Expire(today)
		first := len(quiet.r.Holders) == 0 && quiet.r.place(name(i)) == 0
		for range 5 {
			quiet.take(t, i, modes[i])
			if first || slices.ContainsFunc(quiet.r.Holders, func(h Holder) bool { return h.Token == name(i) && !h.Tail }) {
				break
			}
			quiet.pass()
		}
		if quiet.held[i] == 0 {
			t.Fatalf("%s never gets in", name(i))
		}
	}
}

func (s *small) clone() *small {
	return &small{held: s.held, r: Record{
		Fence:   s.r.Fence,
		Holders: slices.Clone(s.r.Holders),
		Queue:   slices.Clone(s.r.Queue),
	}}
}

// plain makes states alike that differ only in what decides nothing: when somebody
// came, and how far apart the fences are.
func (s *small) plain() string {
	for i := range s.r.Holders {
		s.r.Holders[i].Since, s.r.Holders[i].Fence = 0, 0
	}
	for i := range s.r.Queue {
		s.r.Queue[i].Since = 0
	}
	s.r.Fence = min(s.r.Fence, 1)
	return fmt.Sprint(s.r, s.held)
}

func TestEveryOrderOfSteps(t *testing.T) {
	for _, modes := range [][]backend.Mode{
		{exclusive, exclusive, exclusive},
		{exclusive, exclusive, shared},
		{exclusive, shared, shared},
		{slots(2), slots(2), slots(2)},
		{slots(2), slots(2), exclusive},
		{slots(2), shared, exclusive},
	} {
		t.Run(fmt.Sprint(modes), func(t *testing.T) {
			seen := map[string]bool{}
			for states := []*small{{}}; len(states) > 0; states = states[1:] {
				for _, st := range steps() {
					next := states[0].clone()
					st.do(t, next, modes)
					if key := next.plain(); !seen[key] {
						seen[key] = true
						next.exclusion(t, modes)
						next.alive(t, modes)
						states = append(states, next)
					}
				}
			}
			t.Logf("%d states", len(seen))
		})
	}
}
