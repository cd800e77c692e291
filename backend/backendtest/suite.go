// Package backendtest is what every lock service must do, as tests: the conformance
// suite, and the helpers that a service's own tests share with it.
//
// The suite sees a service through several clients, so that nothing can depend on
// what one process remembers, and decides nothing by a stopwatch: it waits for what
// must happen, for as long as Patience.
package backendtest

import (
	"testing"

	"github.com/dlock/dlock/backend"
)

// Service is one lock service on which nothing was ever locked.
type Service struct {
	// Dial returns one more client of the service, seen through a namespace, as
	// another process would have it. The suite closes it.
	Dial func(namespace string) backend.Backend

	// InLine is for a service whose Inspect shows a waiter before its place is certain:
	// it returns once the first n waiters of the lock will get in in their order. It is
	// nil where a waiter that is shown is in line.
	InLine func(name string, n int)
}

// Run runs the suite, each test with a fresh service, and with locks in namespace
// where the test is not about namespaces.
func Run(t *testing.T, namespace string, fresh func(t *testing.T) Service) {
	first := &env{Service: fresh(t), namespace: namespace}
	limits := first.client(t).Limits()
	for _, test := range conformance(limits) {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, &env{Service: fresh(t), namespace: namespace, limits: limits})
		})
	}
}

type test struct {
	name string
	run  func(t *testing.T, e *env)
}

// conformance lists the tests for a service with these limits.
func conformance(limits backend.Limits) []test {
	tests := []test{
		{"limits make sense", limitsMakeSense},
		{"impossible requests are refused", impossibleRequestsAreRefused},
		{"modes exclude each other", modesExcludeEachOther},
		{"another number of slots is an error", otherSlotsAreAnError},
		{"another number of slots is an error in line", otherSlotsAreAnErrorInLine},
		{"a repeated request changes nothing", repeatedRequest},
		{"a second release is a loss", secondRelease},
		{"every hold has a larger fence", fencesGrow},
		{"a lease is counted from before its request", leases},
		{"waiters get in in order", waitersGetInInOrder},
		{"a writer is not starved by readers", writerIsNotStarved},
		{"readers next to each other get in together", readersEnterTogether},
		{"slots wait for any holder", slotsWaitForAnyHolder},
		{"no wait is busy at once", noWaitIsBusyAtOnce},
		{"a wait begins with a word", waitBeginsWithAWord},
		{"a refused wait leaves nothing", refusedWait},
		{"a cancelled waiter leaves nothing", cancelledWaiter},
		{"a cancelled head of the line blocks nobody", cancelledHead},
		{"many contenders, one at a time", manyContenders},
		{"many contenders for slots", manyContendersForSlots},
		{"a tail is busy and ends by itself", tailEnds},
		{"a tail may count as busy", tailIsBusy},
		{"revoked holds of runs are marked", revokeRun},
		{"runs are revoked now, or not at all", revokeRunNow},
		{"revocation finds one holder", revokeFindsOne},
		{"inspect shows holders", inspectHolders},
		{"inspect shows waiters in order", inspectWaiters},
		{"inspect knows free locks", inspectFree},
		{"inspect lists what is held", inspectLists},
		{"attach refuses what is not detached", attachRefuses},
		{"names never meet", namesNeverMeet},
		{"namespaces never meet", namespacesNeverMeet},
		{"a lock that nobody uses can be forgotten", forgetUnused},
	}
	if limits.NoDetached != "" {
		return append(tests, test{"detached holds are refused", detachedIsRefused})
	}
	return append(tests,
		test{"detached holds end for waiters", detachedEnds},
		test{"detached holds are renewed from anywhere", detachedIsRenewed},
		test{"detached holds are released from anywhere", detachedIsReleased},
		test{"detached holds are revoked at once", detachedIsRevoked},
		test{"a detached hold may leave a tail", detachedLeavesATail},
	)
}

// env is what one test works with.
type env struct {
	Service
	namespace string
	limits    backend.Limits
}

// client dials one more client.
func (e *env) client(t *testing.T) backend.Backend { return e.clientIn(t, e.namespace) }

func (e *env) clientIn(t *testing.T, namespace string) backend.Backend {
	b := e.Dial(namespace)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// acquire takes a lock through a client of its own.
func (e *env) acquire(t *testing.T, req backend.Request) backend.Hold {
	t.Helper()
	return MustAcquire(t, e.client(t), req)
}

// busy looks at a busy lock through a client of its own.
func (e *env) busy(t *testing.T, req backend.Request) *backend.BusyError {
	t.Helper()
	return MustBeBusy(t, e.client(t), req)
}

// free takes a lock that must be free, and gives it back.
func (e *env) free(t *testing.T, req backend.Request) {
	t.Helper()
	MustRelease(t, e.acquire(t, NoWait(req)))
}

// wait starts to wait through a client of its own, and returns once n are in line.
func (e *env) wait(t *testing.T, req backend.Request, n int) *Waiter {
	t.Helper()
	w := Wait(t, e.client(t), req)
	e.inLine(t, req.Name, n)
	return w
}

// inLine waits until n wait for the lock.
func (e *env) inLine(t *testing.T, name string, n int) {
	t.Helper()
	b := e.client(t)
	Eventually(t, "the waiters are in line", func() bool { return len(InspectOne(t, b, name).Waiters) == n })
	if e.InLine != nil {
		e.InLine(name, n)
	}
}

// shortest is a lease that ends soon.
func (e *env) shortest(req backend.Request) backend.Request { return Detached(req, e.limits.MinTTL) }

// owned lists the ways in which a hold is owned.
func (e *env) owned() []ownership {
	run := ownership{"run", func(r backend.Request) backend.Request { return r }}
	detached := ownership{"detached", func(r backend.Request) backend.Request { return Detached(r, r.TTL) }}
	if e.limits.NoDetached != "" {
		return []ownership{run}
	}
	return []ownership{run, detached}
}

type ownership struct {
	name  string
	apply func(backend.Request) backend.Request
}
