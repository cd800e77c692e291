package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/file"
)

func fileService(dir string) Service {
	return Service{Label: "files", Open: func() (backend.Backend, error) { return file.New(file.Options{Dir: dir}), nil }}
}

func inProcess(t *testing.T, services ...Service) Config {
	return Config{
		Services: services, Workloads: []string{Uncontended, Contention}, Duration: 400 * time.Millisecond,
		Clients: 3, Hold: time.Millisecond, Dir: t.TempDir(),
	}
}

func TestSoundServiceIsCleared(t *testing.T) {
	dir := t.TempDir()
	steps := 0
	c := inProcess(t, fileService(dir))
	c.Progress = func(done, total int, _ string) {
		if done != steps || total != 2*rounds {
			t.Errorf("progress: %d of %d", done, total)
		}
		steps++
	}
	report, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	r := report.Services[0]
	if report.Broken() || r.Holds < 20 || r.Errors > 0 || len(r.Left) > 0 {
		t.Errorf("%s, left %q", r.Verdict(), r.Left)
	}
	if n := len(r.Uncontended); n != 3 || r.Uncontended[1].Clients != 2 || r.Uncontended[2].Rate() <= 0 {
		t.Errorf("%d numbers of clients", n)
	}
	if r.Contention.HandOver.Count() == 0 || r.Contention.Drain(c.Hold) < 1 {
		t.Errorf("%d hand-overs, drained in %.2f times the ideal", r.Contention.HandOver.Count(), r.Contention.Drain(c.Hold))
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left in the directory: %v", left)
	}
}

// broken lets everybody in at once, under fences that begin anew.
type broken struct{ backend.Backend }

func (b broken) Acquire(ctx context.Context, req backend.Request) (backend.Hold, error) {
	req.Name = uuid.NewString()
	h, err := b.Backend.Acquire(ctx, req)
	return one{h}, err
}

type one struct{ backend.Hold }

func (h one) Grant() backend.Grant {
	g := h.Hold.Grant()
	g.Fence = 1
	return g
}

func TestBrokenServiceIsFound(t *testing.T) {
	s := fileService(t.TempDir())
	open := s.Open
	s.Label = "<broken>"
	s.Open = func() (backend.Backend, error) {
		b, err := open()
		return broken{b}, err
	}
	report, err := Run(t.Context(), inProcess(t, fileService(t.TempDir()), s))
	if err != nil {
		t.Fatal(err)
	}
	sound, found := report.Services[0], report.Services[1]
	if sound.Overlaps+sound.Regressions > 0 || found.Overlaps == 0 || found.Regressions == 0 || !report.Broken() {
		t.Errorf("sound: %s; broken: %s", sound.Verdict(), found.Verdict())
	}
	var text, page bytes.Buffer
	if err := errors.Join(report.WriteText(&text), report.WriteHTML(&page, "here & now")); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), found.Verdict()) {
		t.Error(text.String())
	}
	for _, part := range []string{"here &amp; now", "<li class=\"bad\">&lt;broken&gt;: " + found.Verdict(), "<li>files: 0 overlaps"} {
		if !strings.Contains(page.String(), part) {
			t.Errorf("the page lacks %s", part)
		}
	}
}

func TestInterruptedRunReports(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := inProcess(t, fileService(t.TempDir()))
	c.Duration = time.Hour
	time.AfterFunc(200*time.Millisecond, cancel)
	report, err := Run(ctx, c)
	if err != nil || !report.Interrupted || report.Services[0].Errors > 0 {
		t.Errorf("%v, %+v", err, report.Services[0].FirstError)
	}
	var text bytes.Buffer
	if err := report.WriteText(&text); err != nil || !strings.Contains(text.String(), "interrupted") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// unreachable answers as services do when the wait for them was ended.
type unreachable struct{ backend.Backend }

func (unreachable) Acquire(ctx context.Context, _ backend.Request) (backend.Hold, error) {
	<-ctx.Done()
	return nil, backend.ErrUnavailable
}

func TestInterruptedWhileConnecting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := fileService(t.TempDir())
	open := s.Open
	s.Open = func() (backend.Backend, error) {
		b, err := open()
		time.AfterFunc(10*time.Millisecond, cancel)
		return unreachable{b}, err
	}
	if report, err := Run(ctx, inProcess(t, s)); err != nil || !report.Interrupted {
		t.Errorf("%v, interrupted %v", err, report.Interrupted)
	}
}

func TestServiceThatDoesNotWorkIsFoundFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Run(t.Context(), inProcess(t, fileService(t.TempDir()), fileService(path)))
	if !errors.Is(err, backend.ErrUnavailable) {
		t.Error(err)
	}
}

func TestReportAsJSON(t *testing.T) {
	r := Report{Clients: 2, Hold: seconds(5 * time.Millisecond), Services: []*Result{{
		Service:    "s",
		Contention: &Contended{HandOver: newLatency(), turns: []int{3, 1}, drained: 2, draining: 20 * time.Millisecond, requests: 8, counted: 4},
		Tally:      Tally{Holds: 4, Overlaps: 1},
	}}}
	r.Services[0].Contention.HandOver.record(2 * time.Millisecond)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"hold_seconds":0.005`, `"p50_seconds":0.002`, `"fairness":0.8,`, `"drain_times_ideal":2,`, `"requests_per_turn":2`, `"holds":4,"overlaps":1,`,
	} {
		if !bytes.Contains(text, []byte(part)) {
			t.Errorf("%s lacks %s", text, part)
		}
	}
}

func TestFairness(t *testing.T) {
	for _, c := range []struct {
		turns []int
		want  float64
	}{{[]int{5, 5, 5, 5}, 1}, {[]int{8, 0, 0, 0}, 0.25}, {nil, 0}} {
		if got := (&Contended{turns: c.turns}).Fairness(); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", c.turns, got, c.want)
		}
	}
}

func TestWitnessReadsSections(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("in 1\nout 1\nin 2\nin 4\nout 2\nout 4\nin 4\nout 4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var w witness
	if err := w.read(log); err != nil || w.tally != (Tally{Holds: 4, Overlaps: 1, Regressions: 1}) {
		t.Errorf("%+v, %v", w.tally, err)
	}
}

func TestLookAtAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got := stillOpen(r); got != 1 {
		t.Errorf("an open pipe counts %d", got)
	}
	w.Close()
	if got := stillOpen(r); got != 0 {
		t.Errorf("a pipe that was closed counts %d", got)
	}
}
