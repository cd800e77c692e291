package backendtest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock/dlock/backend"
)

func modesExcludeEachOther(t *testing.T, e *env) {
	for i, tt := range []struct {
		held, wanted backend.Mode
		admitted     bool
	}{
		{Exclusive, Exclusive, false},
		{Exclusive, Shared, false},
		{Exclusive, Slots(2), false},
		{Shared, Exclusive, false},
		{Shared, Shared, true},
		{Shared, Slots(2), false},
		{Slots(2), Exclusive, false},
		{Slots(2), Shared, false},
		{Slots(2), Slots(2), true},
		{Slots(1), Slots(1), false},
	} {
		for _, first := range e.owned() {
			for _, second := range e.owned() {
				t.Run(fmt.Sprintf("%s %v, then %s %v", first.name, tt.held, second.name, tt.wanted), func(t *testing.T) {
					name := fmt.Sprintf("%d %s %s", i, first.name, second.name)
					wanted := func() backend.Request { return second.apply(Request(name, tt.wanted)) }
					h := e.acquire(t, first.apply(Request(name, tt.held)))
					if tt.admitted {
						e.free(t, wanted())
					} else {
						onlyHolder(t, e.busy(t, wanted()), h)
					}
					MustRelease(t, h)
					e.free(t, wanted())
				})
			}
		}
	}
}

// onlyHolder checks that a busy error names one holder.
func onlyHolder(t *testing.T, busy *backend.BusyError, h backend.Hold) {
	t.Helper()
	if len(busy.Holders) != 1 || busy.Holders[0].Token != h.Grant().Token {
		t.Errorf("busy names %+v, want the holder %s", busy.Holders, h.Grant().Token)
	}
}

func otherSlotsAreAnError(t *testing.T, e *env) {
	for _, owned := range e.owned() {
		h := e.acquire(t, owned.apply(Request("j", Slots(2))))
		for _, req := range []backend.Request{Request("j", Slots(3)), NoWait(Request("j", Slots(1)))} {
			_, err := e.client(t).Acquire(t.Context(), req)
			mustBe(t, "another number of slots beside a holder", err, backend.ErrInvalid)
		}
		MustRelease(t, h)
	}
	e.free(t, Request("j", Slots(3)))
}

// otherSlotsAreAnErrorInLine: some services see it at once, others when those who
// wait for the first number hold the lock.
func otherSlotsAreAnErrorInLine(t *testing.T, e *env) {
	h := e.acquire(t, Request("j", Exclusive))
	first := e.wait(t, Request("j", Slots(2)), 1)
	second := Acquire(t, e.client(t), Request("j", Slots(3)))
	MustRelease(t, h)
	two := first.Hold(t)
	mustBe(t, "another number of slots behind a waiter", second.Err(t), backend.ErrInvalid)
	MustRelease(t, two)
}

func manyContenders(t *testing.T, e *env) {
	var inside atomic.Int32
	var last atomic.Uint64
	contend(t, e, 16, 25, Exclusive, func(_ backend.Backend, h backend.Hold) {
		if inside.Add(1) != 1 {
			t.Error("two holders")
		}
		if f := h.Grant().Fence; last.Swap(f) >= f {
			t.Error("the fence did not grow")
		}
		inside.Add(-1)
	})
}

func manyContendersForSlots(t *testing.T, e *env) {
	var inside atomic.Int32
	contend(t, e, 12, 15, Slots(3), func(b backend.Backend, _ backend.Hold) {
		if n := inside.Add(1); n > 3 {
			t.Errorf("%d holders of 3 slots", n)
		}
		// It also takes the time that holds need to overlap.
		if list, err := b.Inspect(t.Context(), "j"); err != nil || len(list[0].Holders) > 3 {
			t.Errorf("inspect: %+v, %v; want at most 3 holders", list, err)
		}
		inside.Add(-1)
	})
}

// contend lets several clients take the lock "j" in turn, so many rounds each.
func contend(t *testing.T, e *env, clients, rounds int, mode backend.Mode, work func(backend.Backend, backend.Hold)) {
	var wg sync.WaitGroup
	for range clients {
		b := e.client(t)
		wg.Go(func() {
			for range rounds {
				if !turn(t, b, Request("j", mode), work) {
					return
				}
			}
		})
	}
	wg.Wait()
}

// turn takes the lock once, on a goroutine that may not end the test.
func turn(t *testing.T, b backend.Backend, req backend.Request, work func(backend.Backend, backend.Hold)) bool {
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	h, err := b.Acquire(ctx, req)
	if err != nil {
		t.Errorf("acquire: %v", err)
		return false
	}
	work(b, h)
	MustRelease(t, h)
	return true
}
