package record

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/dlock/dlock/backend"
)

// pushed is a state of the small world where the lock is offered to waiters: a
// contender believes that it holds when it was answered, and not when it was offered.
type pushed struct {
	small
	deaf [crew]bool
}

func (s *pushed) push() Push {
	return Push{
		Offer: tick, Unheard: tick,
		Hears: func(token string) bool { return !s.deaf[int(token[0]-'a')] },
		Tell:  func(string, bool) {},
	}
}

// ask is the take of contender i, which waits, and answers offers.
func (s *pushed) ask(t *testing.T, i int, mode backend.Mode) {
	fence, held := s.r.Fence, s.held[i]
	offered := slices.ContainsFunc(s.r.Holders, func(h Holder) bool { return h.Token == name(i) && h.Offered })
	h, err := s.push().Take(&s.r, today, Claim{Token: name(i), Mode: mode, TTL: 2 * tick, Leased: true, Seed: 1, Place: 2 * tick})
	if err == nil {
		h, err = s.r.Renew(today, name(i), 0) // as a service does when a holder asks again
	}
	var busy *backend.BusyError
	switch {
	case err == nil:
		if held == 0 && !offered && h.Fence <= fence {
			t.Fatalf("fence %d after %d", h.Fence, fence)
		}
		s.held[i] = h.Expires
	case errors.As(err, &busy), errors.Is(err, backend.ErrDenied):
	default:
		s.answer(t, i, 0, err)
	}
}

func (s *pushed) release(t *testing.T, i int) {
	if err := s.r.Release(today, name(i)); err == nil || s.held[i] != 0 {
		s.held[i] = today + 1 // whatever it was offered, it has nothing after this
		s.answer(t, i, 0, err)
	}
	s.push().Promote(&s.r, today, 1)
}

// pushSteps are all that can happen next.
func pushSteps(t *testing.T, modes []backend.Mode) []func(*pushed) {
	all := []func(*pushed){func(s *pushed) { s.pass() }}
	for i := range crew {
		all = append(all,
			func(s *pushed) { s.ask(t, i, modes[i]) },
			func(s *pushed) { s.release(t, i) },
			func(s *pushed) { s.r.Quit(name(i)); s.push().Promote(&s.r, today, 1) },
			func(s *pushed) { s.deaf[i] = !s.deaf[i] },
		)
	}
	return all
}

func (s *pushed) copy() *pushed { return &pushed{small: *s.clone(), deaf: s.deaf} }

// servesWhoAsks fails if a contender that hears and asks on each tick stays out although
// all others have fallen silent.
func (s *pushed) servesWhoAsks(t *testing.T, modes []backend.Mode) {
	for i := range crew {
		quiet := s.copy()
		quiet.deaf = [crew]bool{true, true, true}
		quiet.deaf[i] = false
		for range 6 {
			quiet.ask(t, i, modes[i])
			if quiet.held[i] != 0 {
				break
			}
			quiet.pass()
		}
		if quiet.held[i] == 0 {
			t.Fatalf("%s never gets in", name(i))
		}
	}
}

func TestEveryOrderOfPushedSteps(t *testing.T) {
	for _, modes := range [][]backend.Mode{
		{exclusive, exclusive, exclusive},
		{exclusive, shared, shared},
		{slots(2), slots(2), exclusive},
	} {
		t.Run(fmt.Sprint(modes), func(t *testing.T) {
			seen := map[string]bool{}
			for states := []*pushed{{}}; len(states) > 0; states = states[1:] {
				for _, step := range pushSteps(t, modes) {
					next := states[0].copy()
					step(next)
					if key := fmt.Sprint(next.plain(), next.deaf); !seen[key] {
						seen[key] = true
						next.exclusion(t, modes)
						next.servesWhoAsks(t, modes)
						states = append(states, next)
					}
				}
			}
			t.Logf("%d states", len(seen))
		})
	}
}
