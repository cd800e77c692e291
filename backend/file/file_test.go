package file

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/record"
	"github.com/dlock/dlock/internal/boottime"
)

func TestConformance(t *testing.T) {
	backendtest.Run(t, "", func(t *testing.T) backendtest.Service {
		dir := filepath.Join(t.TempDir(), "locks")
		return backendtest.Service{
			Dial: func(namespace string) backend.Backend { return New(Options{Dir: dir, Namespace: namespace}) },
			InLine: func(name string, n int) {
				turnstile := filepath.Join(dir, baseName("", name)+stateSuffix, "turnstile")
				backendtest.Eventually(t, "the waiters are at the turnstile", func() bool { return countLocks(t, turnstile) == n })
			},
		}
	})
}

// countLocks counts those that have a file locked in the kernel or wait for it.
func countLocks(t *testing.T, path string) int {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	dev := uint64(st.Dev)
	return len(readKernelLocks()[inode{unix.Major(dev), unix.Minor(dev), st.Ino}])
}

func TestCancelledWaiterLeavesNoFiles(t *testing.T) {
	b := newBackend(t)
	h := mustAcquire(t, b, request("j", exclusive))
	enough := errors.New("enough")
	w := backendtest.Wait(t, b, request("j", exclusive))
	w.Cancel(enough)
	if err := w.Err(t); !errors.Is(err, enough) {
		t.Errorf("cancelled wait: %v, want its cause", err)
	}
	mustRelease(t, h)
	noLiveFiles(t, b, "j")
}

func noLiveFiles(t *testing.T, b *Backend, name string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(b.opts.Dir, name+stateSuffix, livePrefix+"*"))
	if err != nil || len(left) != 0 {
		t.Errorf("live files left: %v, %v", left, err)
	}
}

func TestRevokeNowNamesTheProcess(t *testing.T) {
	b := newBackend(t)
	req := request("j", exclusive)
	h := mustAcquire(t, b, req)
	defer mustRelease(t, h)
	_, err := b.Revoke(t.Context(), "j", req.Token, true)
	if pid := fmt.Sprint("signal pid ", req.Owner.PID); !errors.Is(err, backend.ErrUnsupported) || !strings.Contains(err.Error(), pid) {
		t.Errorf("revoke now of a kernel lock: %v, want ErrUnsupported and the advice to %s", err, pid)
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
	old := mustAcquire(t, b, backendtest.Detached(request("j", exclusive), time.Hour))
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
	next := backendtest.Wait(t, b, request("j", exclusive))
	unlock(f)
	mustRelease(t, next.Hold(t))
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
		req := backendtest.Detached(request("j", shared), time.Hour)
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
	noLiveFiles(t, b, "j")
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
