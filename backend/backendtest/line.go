package backendtest

import (
	"errors"
	"testing"

	"github.com/dlock/dlock/backend"
)

func waitersGetInInOrder(t *testing.T, e *env) {
	h := e.acquire(t, Request("j", Exclusive))
	var waiters []*Waiter
	for i := range 5 {
		waiters = append(waiters, e.wait(t, Request("j", Exclusive), i+1))
	}
	for i, next := range waiters {
		MustRelease(t, h)
		h = next.Hold(t)
		for _, later := range waiters[i+1:] {
			later.StillWaits(t)
		}
	}
	MustRelease(t, h)
}

func writerIsNotStarved(t *testing.T, e *env) {
	reader := e.acquire(t, Request("j", Shared))
	writer := e.wait(t, Request("j", Exclusive), 1)
	e.busy(t, Request("j", Shared)) // does not pass the writer
	later := e.wait(t, Request("j", Shared), 2)
	MustRelease(t, reader)
	w := writer.Hold(t)
	later.StillWaits(t)
	MustRelease(t, w)
	MustRelease(t, later.Hold(t))
}

func readersEnterTogether(t *testing.T, e *env) {
	for _, mode := range []backend.Mode{Shared, Slots(3)} {
		h := e.acquire(t, Request("j", Exclusive))
		var waiters []*Waiter
		for i := range 3 {
			waiters = append(waiters, e.wait(t, Request("j", mode), i+1))
		}
		last := e.wait(t, Request("j", Exclusive), 4)
		MustRelease(t, h)
		var holds []backend.Hold
		for _, w := range waiters {
			holds = append(holds, w.Hold(t)) // while those before it hold
		}
		last.StillWaits(t)
		for _, h := range holds {
			MustRelease(t, h)
		}
		MustRelease(t, last.Hold(t))
	}
}

func slotsWaitForAnyHolder(t *testing.T, e *env) {
	for _, owned := range e.owned() {
		request := func() backend.Request { return owned.apply(Request("j", Slots(2))) }
		holds := []backend.Hold{e.acquire(t, request()), e.acquire(t, request())}
		for i := range holds {
			next := e.wait(t, request(), 1)
			MustRelease(t, holds[i])
			holds[i] = next.Hold(t)
		}
		for _, h := range holds {
			MustRelease(t, h)
		}
	}
}

func noWaitIsBusyAtOnce(t *testing.T, e *env) {
	h := e.acquire(t, Request("j", Exclusive))
	silent := Request("j", Exclusive)
	silent.Waiting = func(backend.Wait) error { t.Error("it does not wait, and says that it does"); return nil }
	busy := e.busy(t, silent)
	onlyHolder(t, busy, h)
	if busy.Ahead != 0 {
		t.Errorf("%d ahead, want none", busy.Ahead)
	}
	next := e.wait(t, Request("j", Exclusive), 1)
	if busy := e.busy(t, silent); busy.Ahead != 1 {
		t.Errorf("%d ahead, want 1", busy.Ahead)
	}
	MustRelease(t, h)
	MustRelease(t, next.Hold(t))
	e.free(t, silent)
}

func waitBeginsWithAWord(t *testing.T, e *env) {
	req := Request("j", Exclusive)
	words := make(chan backend.Wait, 100)
	req.Waiting = func(w backend.Wait) error { words <- w; return nil }
	MustRelease(t, e.acquire(t, req)) // without a wait
	h := e.acquire(t, Request("j", Exclusive))
	first := e.wait(t, Request("j", Exclusive), 1)
	req.Token = Request("j", Exclusive).Token
	second := Acquire(t, e.client(t), req)
	word := Receive(t, words, "the beginning of the wait")
	onlyHolder(t, &backend.BusyError{Holders: word.Holders}, h)
	if word.Ahead != 1 {
		t.Errorf("%d ahead, want 1", word.Ahead)
	}
	MustRelease(t, h)
	MustRelease(t, first.Hold(t))
	MustRelease(t, second.Hold(t))
	if n := len(words); n != 0 {
		t.Errorf("%d words too many", n)
	}
}

func refusedWait(t *testing.T, e *env) {
	h := e.acquire(t, Request("j", Exclusive))
	refusal := errors.New("it would be a deadlock")
	req := Request("j", Exclusive)
	req.Waiting = func(backend.Wait) error { return refusal }
	_, err := e.client(t).Acquire(t.Context(), req)
	mustBe(t, "a refused wait", err, refusal)
	e.lineIsEmpty(t)
	MustRelease(t, h)
	e.free(t, Request("j", Exclusive))
}

func (e *env) lineIsEmpty(t *testing.T) {
	t.Helper()
	if s := InspectOne(t, e.client(t), "j"); len(s.Waiters) != 0 {
		t.Errorf("waiters left: %+v", s.Waiters)
	}
}

func cancelledWaiter(t *testing.T, e *env) {
	h := e.acquire(t, Request("j", Exclusive))
	b := e.client(t)
	enough := errors.New("enough")
	for range 20 { // at once, and so at different points of the wait
		w := Wait(t, b, Request("j", Exclusive))
		w.Cancel(enough)
		mustBe(t, "a cancelled wait", w.Err(t), enough)
	}
	e.lineIsEmpty(t)
	w := e.wait(t, Request("j", Shared), 1)
	w.Cancel(enough)
	mustBe(t, "a cancelled wait", w.Err(t), enough)
	e.lineIsEmpty(t)
	next := e.wait(t, Request("j", Exclusive), 1)
	MustRelease(t, h)
	MustRelease(t, next.Hold(t))
}

func cancelledHead(t *testing.T, e *env) {
	h := e.acquire(t, Request("j", Shared))
	head := e.wait(t, Request("j", Exclusive), 1)
	reader := e.wait(t, Request("j", Shared), 2)
	writer := e.wait(t, Request("j", Exclusive), 3)
	head.Cancel(errors.New("enough"))
	second := reader.Hold(t) // nothing stands between the readers now
	_ = head.Err(t)
	writer.StillWaits(t)
	MustRelease(t, h)
	MustRelease(t, second)
	MustRelease(t, writer.Hold(t))
}
