package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
	"github.com/dlock/dlock/internal/boottime"
)

func TestModesExcludeEachOther(t *testing.T) {
	tests := []struct {
		held, wanted backend.Mode
		admitted     bool
	}{
		{exclusive, exclusive, false},
		{exclusive, shared, false},
		{exclusive, slots(2), false},
		{shared, exclusive, false},
		{shared, shared, true},
		{shared, slots(2), false},
		{slots(2), exclusive, false},
		{slots(2), shared, false},
		{slots(2), slots(2), true},
		{slots(1), slots(1), false},
	}
	for _, detach := range []bool{false, true} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("%v then %v, detached %v", tt.held, tt.wanted, detach), func(t *testing.T) {
				b := newBackend(t)
				first := request("j", tt.held)
				if detach {
					first = detachedRequest("j", tt.held, time.Minute)
				}
				h := mustAcquire(t, b, first)
				if tt.admitted {
					mustRelease(t, mustAcquire(t, b, noWait(request("j", tt.wanted))))
				} else {
					busy := mustBeBusy(t, b, request("j", tt.wanted))
					if len(busy.Holders) != 1 || busy.Holders[0].Token != first.Token {
						t.Errorf("busy names %+v, want the first holder", busy.Holders)
					}
				}
				mustRelease(t, h)
				mustRelease(t, mustAcquire(t, b, noWait(request("j", tt.wanted))))
			})
		}
	}
}

func TestAnotherNumberOfSlotsIsAnError(t *testing.T) {
	b := newBackend(t)
	h := mustAcquire(t, b, request("j", slots(2)))
	defer mustRelease(t, h)
	if _, err := b.Acquire(t.Context(), request("j", slots(3))); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("slots 3 beside slots 2: %v, want ErrInvalid", err)
	}
}

func TestWaitersGetInInOrder(t *testing.T) {
	b := newBackend(t)
	h := mustAcquire(t, b, request("j", exclusive))
	var order []int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 5 {
		done := waiting(t, t.Context(), b, request("j", exclusive))
		awaitBlocked(t, b, i+1)
		wg.Go(func() {
			r := <-done
			if r.err != nil {
				t.Errorf("waiter %d: %v", i, r.err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			mustRelease(t, r.hold)
		})
	}
	if s := inspectOne(t, b, "j"); len(s.Waiters) != 5 {
		t.Errorf("inspect shows %d waiters, want 5", len(s.Waiters))
	}
	mustRelease(t, h)
	wg.Wait()
	if got := fmt.Sprint(order); got != "[0 1 2 3 4]" {
		t.Errorf("order = %v", got)
	}
}

// awaitBlocked waits until n threads of this process wait for kernel locks.
func awaitBlocked(t *testing.T, b *Backend, n int) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		blocked := 0
		for _, locks := range readKernelLocks() {
			for _, l := range locks {
				if l.waiting && l.pid == os.Getpid() {
					blocked++
				}
			}
		}
		if blocked >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d threads wait in the kernel, want %d", blocked, n)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestWriterIsNotStarvedByReaders(t *testing.T) {
	b := newBackend(t)
	reader := mustAcquire(t, b, request("j", shared))
	writer := waiting(t, t.Context(), b, request("j", exclusive))
	awaitBlocked(t, b, 1)
	mustBeBusy(t, b, request("j", shared)) // does not pass the writer
	later := waiting(t, t.Context(), b, request("j", shared))
	mustRelease(t, reader)
	w := receive(t, writer, "the writer's turn").must(t)
	select {
	case r := <-later:
		t.Fatalf("a reader got in beside the writer: %v", r.err)
	default:
	}
	mustRelease(t, w)
	mustRelease(t, receive(t, later, "the reader's turn").must(t))
}

func TestCancelledWaiterLeavesNothing(t *testing.T) {
	b := newBackend(t)
	h := mustAcquire(t, b, request("j", exclusive))
	for range 20 {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := waiting(t, ctx, b, request("j", exclusive))
		cancel(cause)
		if r := receive(t, done, "the cancelled waiter's return"); !errors.Is(r.err, cause) {
			t.Fatalf("cancelled wait returned %v, want its cause", r.err)
		}
	}
	if s := inspectOne(t, b, "j"); len(s.Waiters) != 0 {
		t.Errorf("waiters left: %+v", s.Waiters)
	}
	next := waiting(t, t.Context(), b, request("j", exclusive))
	mustRelease(t, h)
	mustRelease(t, receive(t, next, "the next waiter's turn").must(t))
	if left := liveFiles(t, b, "j"); len(left) != 0 {
		t.Errorf("live files left: %v", left)
	}
}

func liveFiles(t *testing.T, b *Backend, name string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.opts.Dir, name+stateSuffix, livePrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestSlotsWaitForAnyHolder(t *testing.T) {
	b := newBackend(t)
	holds := []backend.Hold{mustAcquire(t, b, request("j", slots(2))), mustAcquire(t, b, request("j", slots(2)))}
	for i := range holds {
		next := waiting(t, t.Context(), b, request("j", slots(2)))
		mustRelease(t, holds[i])
		holds[i] = receive(t, next, "a free slot").must(t)
	}
	for _, h := range holds {
		mustRelease(t, h)
	}
}

func TestDetachedExpiresForWaiters(t *testing.T) {
	b := newBackend(t)
	first := mustAcquire(t, b, detachedRequest("j", exclusive, time.Second))
	second := mustAcquire(t, b, request("j", exclusive)) // after a second
	if second.Grant().Fence <= first.Grant().Fence {
		t.Errorf("fence went from %d to %d", first.Grant().Fence, second.Grant().Fence)
	}
	if _, err := first.Renew(t.Context()); !errors.Is(err, backend.ErrLost) {
		t.Errorf("renewal after expiry: %v, want ErrLost", err)
	}
	if err := first.Release(t.Context(), 0); !errors.Is(err, backend.ErrLost) {
		t.Errorf("release after expiry: %v, want ErrLost", err)
	}
	mustBeBusy(t, b, request("j", exclusive)) // the late release harmed nobody
	mustRelease(t, second)
}

func TestDetachedReleaseWakesWaiter(t *testing.T) {
	b := newBackend(t)
	req := detachedRequest("j", exclusive, time.Hour)
	mustAcquire(t, b, req)
	next := waiting(t, t.Context(), b, request("j", exclusive))
	h, err := b.Attach(t.Context(), "j", req.Token, 2*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if lease, err := h.Renew(t.Context()); err != nil || lease.TTL < time.Hour {
		t.Errorf("renew: %v, %v; want two hours", lease.TTL, err)
	}
	mustRelease(t, h)
	mustRelease(t, receive(t, next, "the waiter's turn").must(t))
}

func TestTail(t *testing.T) {
	b := newBackend(t)
	h := mustAcquire(t, b, request("j", exclusive))
	if err := h.Release(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if busy := mustBeBusy(t, b, request("j", exclusive)); len(busy.Holders) != 1 || !busy.Holders[0].Tail {
		t.Errorf("busy names %+v, want a tail", busy.Holders)
	}
	impatient := request("j", exclusive)
	impatient.TailIsBusy = true
	if _, err := b.Acquire(t.Context(), impatient); !errors.As(err, new(*backend.BusyError)) {
		t.Errorf("a tail that counts as busy: %v", err)
	}
	mustRelease(t, mustAcquire(t, b, request("j", exclusive))) // after a second
}

func TestAttachKnowsItsOwn(t *testing.T) {
	b := newBackend(t)
	if _, err := b.Attach(t.Context(), "j", "nobody", 0); !errors.Is(err, backend.ErrLost) {
		t.Errorf("attach to an unknown lock: %v, want ErrLost", err)
	}
	h := mustAcquire(t, b, request("j", exclusive))
	defer mustRelease(t, h)
	if _, err := b.Attach(t.Context(), "j", h.Grant().Token, 0); !errors.Is(err, backend.ErrRunning) {
		t.Errorf("attach to a run: %v, want ErrRunning", err)
	}
	for _, token := range []string{"", "../../x", strings.ToUpper(h.Grant().Token), h.Grant().Token + "\n"} {
		if _, err := b.Attach(t.Context(), "j", token, 0); !errors.Is(err, backend.ErrLost) {
			t.Errorf("attach with token %q: %v, want ErrLost", token, err)
		}
	}
}

func TestRevoke(t *testing.T) {
	b := newBackend(t)
	h := mustAcquire(t, b, request("j", exclusive))
	token := h.Grant().Token
	lost := h.Lost()
	if _, err := b.Revoke(t.Context(), "j", token[:8], true); !errors.Is(err, backend.ErrUnsupported) {
		t.Errorf("revoke now of a kernel lock: %v, want ErrUnsupported", err)
	}
	if _, err := h.Renew(t.Context()); err != nil {
		t.Errorf("a refused revocation changed something: %v", err)
	}
	if _, err := b.Revoke(t.Context(), "j", token[:8], false); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, lost, "notice of the revocation"); !errors.Is(err, backend.ErrRevoked) {
		t.Errorf("lost with %v, want ErrRevoked", err)
	}
	if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrRevoked) {
		t.Errorf("renewal: %v, want ErrRevoked", err)
	}
	mustBeBusy(t, b, request("j", exclusive)) // until its run has released
	mustRelease(t, h)
	if _, err := b.Revoke(t.Context(), "j", token, false); !errors.Is(err, backend.ErrLost) {
		t.Errorf("revoke of nothing: %v, want ErrLost", err)
	}
}

func TestTamperingIsALoss(t *testing.T) {
	for what, tamper := range map[string]func(dir string) error{
		"record removed": func(dir string) error { return os.Remove(filepath.Join(dir, "j.dlock", recordName)) },
		"record replaced": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "j.dlock", recordName), []byte("{}"), 0o600)
		},
		"lock file removed": func(dir string) error { return os.Remove(filepath.Join(dir, "j.lock")) },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBackend(t)
			h := mustAcquire(t, b, request("j", exclusive))
			if err := tamper(b.opts.Dir); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrLost) {
				t.Errorf("renewal: %v, want ErrLost", err)
			}
			_ = h.Release(t.Context(), 0)
			mustRelease(t, mustAcquire(t, b, noWait(request("j", exclusive))))
		})
	}
}

func TestRemovedLockFileLetsNobodyIn(t *testing.T) {
	b := newBackend(t)
	h := mustAcquire(t, b, request("j", exclusive))
	if err := os.Remove(filepath.Join(b.opts.Dir, "j.lock")); err != nil {
		t.Fatal(err)
	}
	mustBeBusy(t, b, request("j", exclusive))
	mustRelease(t, h)
}

func TestNoise(t *testing.T) {
	for what, text := range map[string]string{
		"empty": "", "half": `{"version":1,"holders":[{"tok`, "foreign": `["x"]`, "huge": strings.Repeat("x", maxRecord+1),
		"pid 1":       `{"version":1,"boot":"` + "x" + `","holders":[{"token":"a","mode":{"kind":"exclusive"},"owner":{"pid":1}}]}`,
		"bad token":   `{"version":1,"holders":[{"token":"../../../etc/passwd","mode":{"kind":"exclusive"}}]}`,
		"bad mode":    `{"version":1,"holders":[{"token":"a","mode":{"kind":"slots","n":-4}}]}`,
		"no version":  `{}`,
		"null":        `null`,
		"wrong types": `{"version":"1"}`,
	} {
		t.Run(what, func(t *testing.T) {
			b := newBackend(t)
			mustRelease(t, mustAcquire(t, b, request("j", exclusive)))
			record := filepath.Join(b.opts.Dir, "j.dlock", recordName)
			if err := os.WriteFile(record, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			inspectOne(t, b, "j")
			mustRelease(t, mustAcquire(t, b, noWait(request("j", exclusive))))
		})
	}
}

func TestRecordOfALaterVersionIsLeftAlone(t *testing.T) {
	b := newBackend(t)
	mustRelease(t, mustAcquire(t, b, request("j", exclusive)))
	path := filepath.Join(b.opts.Dir, "j.dlock", recordName)
	const text = `{"version":2,"news":true}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Acquire(t.Context(), request("j", exclusive)); !errors.Is(err, backend.ErrUnavailable) {
		t.Errorf("acquire: %v, want ErrUnavailable", err)
	}
	if got, _ := os.ReadFile(path); string(got) != text {
		t.Errorf("the record was changed to %q", got)
	}
}

func TestAnotherBootFreesAndFenceGrows(t *testing.T) {
	b := newBackend(t)
	old := mustAcquire(t, b, detachedRequest("j", exclusive, time.Hour))
	path := filepath.Join(b.opts.Dir, "j.dlock", recordName)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := parseRecord(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(text), rec.Boot, "another boot")), 0o600); err != nil {
		t.Fatal(err)
	}
	h := mustAcquire(t, b, noWait(request("j", exclusive)))
	defer mustRelease(t, h)
	if h.Grant().Fence <= old.Grant().Fence {
		t.Errorf("fence went from %d to %d", old.Grant().Fence, h.Grant().Fence)
	}
}

func TestFencesGrowAlsoWhenTheRecordIsLost(t *testing.T) {
	b := newBackend(t)
	var last uint64
	for i := range 20 {
		h := mustAcquire(t, b, request("j", exclusive))
		if f := h.Grant().Fence; f <= last {
			t.Fatalf("fence %d after %d", f, last)
		} else {
			last = f
		}
		mustRelease(t, h)
		if i%5 == 0 {
			if err := os.Remove(filepath.Join(b.opts.Dir, "j.dlock", recordName)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestManyContendersOneAtATime(t *testing.T) {
	b := newBackend(t)
	var inside atomic.Int32
	var last atomic.Uint64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 25 {
				h, err := b.Acquire(t.Context(), request("j", exclusive))
				if err != nil {
					t.Error(err)
					return
				}
				if inside.Add(1) != 1 {
					t.Error("two holders")
				}
				if f := h.Grant().Fence; last.Swap(f) >= f {
					t.Error("fence did not grow")
				}
				inside.Add(-1)
				mustRelease(t, h)
			}
		})
	}
	wg.Wait()
}

func TestManyContendersForSlots(t *testing.T) {
	b := newBackend(t)
	var inside atomic.Int32
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			for range 15 {
				h, err := b.Acquire(t.Context(), request("j", slots(3)))
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n > 3 {
					t.Errorf("%d holders of 3 slots", n)
				}
				time.Sleep(time.Millisecond) // the holds must overlap to be counted
				inside.Add(-1)
				mustRelease(t, h)
			}
		})
	}
	wg.Wait()
}

func TestExcludesFlock(t *testing.T) {
	b := newBackend(t)
	h := mustAcquire(t, b, request("j", exclusive))
	path := filepath.Join(b.opts.Dir, "j.lock")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, errWouldBlock) {
		t.Errorf("flock beside a hold: %v", err)
	}
	mustRelease(t, h)
	if err := flock(f, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		t.Errorf("flock of a free lock: %v", err)
	}
	mustBeBusy(t, b, request("j", exclusive))
	mustBeBusy(t, b, request("j", shared))
	next := waiting(t, t.Context(), b, request("j", exclusive))
	unlock(f)
	mustRelease(t, receive(t, next, "the lock after flock").must(t))
}

func TestStoppedMutexHolderIsAServiceThatDoesNotAnswer(t *testing.T) {
	b := newBackend(t)
	mustRelease(t, mustAcquire(t, b, request("j", exclusive)))
	mutex, err := os.Open(filepath.Join(b.opts.Dir, "j.dlock", "mutex"))
	if err != nil {
		t.Fatal(err)
	}
	defer mutex.Close()
	if err := flock(mutex, unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	_, err = b.Acquire(ctx, request("j", exclusive))
	if !errors.Is(err, backend.ErrUnavailable) || !errors.Is(err, cause) {
		t.Errorf("acquire: %v, want ErrUnavailable and the cause", err)
	}
	list, err := b.Inspect(t.Context())
	if err != nil || len(list) != 1 || !errors.Is(list[0].Err, backend.ErrUnavailable) {
		t.Errorf("inspect: %+v, %v; want one lock that cannot be read", list, err)
	}
}

func TestRemovedOrMovedDirectoryIsALoss(t *testing.T) {
	for what, tamper := range map[string]func(dir string) error{
		"all removed":   os.RemoveAll,
		"all moved":     func(dir string) error { return os.Rename(dir, dir+".old") },
		"state removed": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "j.dlock")) },
		"state moved":   func(dir string) error { return os.Rename(filepath.Join(dir, "j.dlock"), filepath.Join(dir, "x")) },
	} {
		t.Run(what, func(t *testing.T) {
			b := newBackend(t)
			h := mustAcquire(t, b, request("j", exclusive))
			if err := tamper(b.opts.Dir); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Renew(t.Context()); !errors.Is(err, backend.ErrLost) {
				t.Errorf("renewal: %v, want ErrLost", err)
			}
			_ = h.Release(t.Context(), 0)
		})
	}
}

func TestRecordThatIsFullTakesNoMore(t *testing.T) {
	b := newBackend(t)
	big := func() backend.Request {
		req := detachedRequest("j", shared, time.Hour)
		req.Owner.Reason = strings.Repeat("<", maxRecord/12)
		return req
	}
	mustAcquire(t, b, big())
	var err error
	for range 3 {
		if _, err = b.Acquire(t.Context(), big()); err != nil {
			break
		}
	}
	if !errors.Is(err, backend.ErrUnavailable) {
		t.Fatalf("acquire with a full record: %v, want ErrUnavailable", err)
	}
	mustBeBusy(t, b, request("j", exclusive)) // nobody was forgotten
}

func TestBootsThatCannotBeTold(t *testing.T) {
	held := func(boot string) *stored {
		s := &stored{Version: recordVersion, Boot: boot}
		s.Holders = []record.Holder{{Token: "a", Mode: exclusive, Since: 1}}
		return s
	}
	for _, tt := range []struct {
		what string
		rec  *stored
		boot string
		old  bool
		err  error
	}{
		{"the same boot", held("x"), "x", false, nil},
		{"another boot", held("x"), "y", true, nil},
		{"another time namespace", held("x"), "x" + boottime.Apart + "time:[7]", false, backend.ErrUnavailable},
		{"another time namespace, nobody holds", &stored{Version: recordVersion, Boot: "x"}, "x" + boottime.Apart + "time:[7]", false, nil},
		{"no record", &stored{}, "x", true, nil},
	} {
		old, err := tt.rec.fromEarlierBoot(tt.boot)
		if old != tt.old || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v, %v; want %v, %v", tt.what, old, err, tt.old, tt.err)
		}
	}
	if boottime.NamesBoots {
		if _, err := held("x").fromEarlierBoot(""); !errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("a boot id that cannot be read: %v, want ErrUnavailable", err)
		}
	}
}

func TestKilledHoldersLeaveNoFiles(t *testing.T) {
	b := newBackend(t)
	for range 3 {
		h := mustAcquire(t, b, request("j", exclusive)).(*hold)
		unlock(h.live) // as the kernel does when the process dies
		unlock(h.public)
	}
	mustRelease(t, mustAcquire(t, b, request("j", exclusive)))
	if left := liveFiles(t, b, "j"); len(left) != 0 {
		t.Errorf("live files left: %v", left)
	}
}

func TestPermissionsOfAKilledMemberAreMended(t *testing.T) {
	b := newBackend(t)
	if err := os.Mkdir(b.opts.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(b.opts.Dir, 0o770|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, mustAcquire(t, b, request("j", exclusive)))
	state, turnstile := filepath.Join(b.opts.Dir, "j.dlock"), filepath.Join(b.opts.Dir, "j.dlock", "turnstile")
	if err := errors.Join(os.Chmod(turnstile, 0o600), os.Chmod(state, 0o700)); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, mustAcquire(t, b, request("j", exclusive)))
	for path, want := range map[string]os.FileMode{state: 0o770, turnstile: 0o660} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
}
