package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dlock/dlock/backend"
)

// uncontended lets 1, 2, 4, … all clients take and release locks of their own.
func (t *target) uncontended(ctx context.Context, d time.Duration) {
	counts := []int{}
	for n := 1; n < t.Clients; n *= 2 {
		counts = append(counts, n)
	}
	counts = append(counts, t.Clients)
	d /= time.Duration(len(counts))
	for i, n := range counts {
		if len(t.result.Uncontended) <= i {
			t.result.Uncontended = append(t.result.Uncontended, &Load{Clients: n, Pair: newLatency()})
		}
		load := t.result.Uncontended[i]
		var all sync.WaitGroup
		began := time.Now()
		for client := range n {
			name := t.name(fmt.Sprint("own-", client))
			all.Go(func() { t.pairs(ctx, t.clients[client], name, began.Add(d), load) })
		}
		all.Wait()
		load.time += time.Since(began)
	}
}

// pairs takes and releases a lock again and again.
func (t *target) pairs(ctx context.Context, b backend.Backend, name string, end time.Time, load *Load) {
	var w witness
	defer func() { t.result.saw(w.tally) }()
	for ctx.Err() == nil && time.Now().Before(end) {
		asked := time.Now()
		h, err := t.take(ctx, b, name, true)
		if err == nil {
			w.enter(h.Grant().Fence)
			w.leave()
			err = release(h)
		}
		if err != nil {
			if !t.failed(ctx, err) {
				return
			}
			continue
		}
		load.Pair.record(time.Since(asked))
	}
}

// queue is one lock that all clients want.
type queue struct {
	name string
	witness

	times    sync.Mutex
	released time.Time // when the last holder began to give it back
	turns    []int     // of each client
	handOver *Latency
}

// contention lets all clients wait for one lock. At the end of the time everybody who
// waits gets one more turn.
func (t *target) contention(ctx context.Context, d time.Duration) {
	if t.result.Contention == nil {
		t.result.Contention = &Contended{Waiters: t.Clients - 1, HandOver: newLatency(), turns: make([]int, t.Clients)}
	}
	r := t.result.Contention
	q := &queue{name: t.name("one"), turns: r.turns, handOver: r.HandOver}
	before, counts := t.requests(ctx)
	var all sync.WaitGroup
	end := time.Now().Add(d)
	var steady int // turns until the end of the time
	var once sync.Once
	for client, b := range t.clients {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := t.turn(ctx, b, q, client); err != nil && !t.failed(ctx, err) {
					return
				}
				if time.Now().After(end) {
					once.Do(func() { steady = q.holds() })
					return
				}
			}
		})
	}
	all.Wait()
	t.result.saw(q.tally)
	if ctx.Err() != nil {
		return
	}
	r.drained += q.tally.Holds - steady
	r.draining += time.Since(end)
	if after, ok := t.requests(ctx); ok && counts {
		r.requests += after - before - 1
		r.counted += q.tally.Holds
	}
}

// turn waits for the lock, holds it, and gives it back.
func (t *target) turn(ctx context.Context, b backend.Backend, q *queue, client int) error {
	asked := time.Now()
	h, err := t.take(ctx, b, q.name, false)
	if err != nil {
		return err
	}
	q.came(asked, client)
	q.enter(h.Grant().Fence)
	time.Sleep(t.Hold)
	q.leave()
	q.goes()
	return release(h)
}

// came notes a hand-over, if this client has waited for the end of the last turn.
func (q *queue) came(asked time.Time, client int) {
	q.times.Lock()
	defer q.times.Unlock()
	q.turns[client]++
	if !q.released.IsZero() && asked.Before(q.released) {
		q.handOver.record(time.Since(q.released))
	}
}

func (q *queue) goes() {
	q.times.Lock()
	defer q.times.Unlock()
	q.released = time.Now()
}

func (q *queue) holds() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.tally.Holds
}

// requests asks the service how much it has done.
func (t *target) requests(ctx context.Context) (uint64, bool) {
	c, ok := t.clients[0].(backend.Counter)
	if !ok {
		return 0, false
	}
	n, err := c.Requests(ctx)
	return n, err == nil // what it may not tell us, it need not
}

// processes runs dlocks, first one after the other, then all clients at once for one lock.
func (t *target) processes(ctx context.Context, d time.Duration) {
	if t.result.Processes == nil {
		t.result.Processes = &Programs{Clients: t.Clients, Alone: newLatency(), Together: newLatency()}
	}
	r := t.result.Processes
	began := time.Now()
	t.programs(ctx, 1, d/2, t.name("process"), r.Alone)
	r.aloneTime += time.Since(began)
	began = time.Now()
	t.programs(ctx, t.Clients, d/2, t.name("processes"), r.Together)
	r.time += time.Since(began)
}

// programs lets n clients run one dlock after the other for a lock.
func (t *target) programs(ctx context.Context, n int, d time.Duration, name string, l *Latency) {
	log := filepath.Join(t.Dir, name)
	end := time.Now().Add(d)
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for ctx.Err() == nil && time.Now().Before(end) {
				began := time.Now()
				if err := t.program(ctx, name, log); err == nil {
					l.record(time.Since(began))
				} else if !t.failed(ctx, err) {
					return
				}
			}
		})
	}
	all.Wait()
	var w witness
	if err := errors.Join(w.read(log), os.Remove(log)); err != nil && ctx.Err() == nil {
		t.result.failed(err)
	}
	t.result.saw(w.tally)
}

// program runs one dlock to its end.
func (t *target) program(ctx context.Context, name, log string) error {
	c := t.Run(name, leaseTTL, "sh", "-c", section, log)
	var said bytes.Buffer
	c.Stderr = &said
	if err := c.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Process.Signal(syscall.SIGTERM) })
	defer stop()
	if err := c.Wait(); err != nil {
		return fmt.Errorf("dlock run: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return nil
}

// crash kills a dlock run with SIGKILL while a client waits for its lock.
func (t *target) crash(ctx context.Context) {
	if t.result.Crash == nil {
		t.result.Crash = &Crashed{TTL: seconds(t.crashTTL()), Next: newLatency()}
	}
	if err := t.kill(ctx, t.name("crash")); err != nil {
		t.failed(ctx, err)
	}
}

func (t *target) kill(ctx context.Context, name string) error {
	// The pipe ends when nothing of the command lives.
	c := t.Run(name, t.crashTTL(), "sh", "-c", "echo in; exec sleep 3600")
	lives, err := startPiped(c)
	if err != nil {
		return err
	}
	defer lives.Close()
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	if _, err := lives.Read(make([]byte, 16)); err != nil {
		return fmt.Errorf("dlock run did not start its command: %w", err)
	}
	next := t.waitBehind(ctx, name)
	select {
	case <-next.waits:
		time.Sleep(settled)
	case <-next.done: // without waiting: it failed, or the lock let in two
	}
	killed := time.Now()
	_ = c.Process.Kill()
	<-next.done
	if next.err != nil {
		return next.err
	}
	t.result.Crash.Next.record(next.at.Sub(killed))
	_ = c.Wait() // a dead dlock's own end of the pipe may last longer than the command's
	t.result.saw(Tally{Holds: 1, Overlaps: stillOpen(lives)})
	return release(next.hold)
}

// settled is how long after the news that it waits a waiter is surely in line.
const settled = 100 * time.Millisecond

// waiter is a client that waits for a lock.
type waiter struct {
	waits chan struct{} // closed when it does
	done  chan struct{} // closed when the rest is known
	hold  backend.Hold
	err   error
	at    time.Time
}

func (t *target) waitBehind(ctx context.Context, name string) *waiter {
	w := &waiter{waits: make(chan struct{}), done: make(chan struct{})}
	var once sync.Once
	r := t.request(t.clients[0], name)
	r.Waiting = func(backend.Wait) error {
		once.Do(func() { close(w.waits) })
		return nil
	}
	go func() {
		defer close(w.done)
		w.hold, w.err = t.clients[0].Acquire(ctx, r)
		w.at = time.Now()
	}()
	return w
}

// startPiped starts a program whose standard output, and that of all it starts, is a pipe.
func startPiped(c *exec.Cmd) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	c.Stdout = w
	if err := c.Start(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// stillOpen counts 1 if somebody still has the other end of a pipe. It looks without a
// deadline: one that a busy machine lets pass would be the answer of Read, and no look.
func stillOpen(r *os.File) (open int) {
	conn, err := r.SyscallConn()
	if err != nil {
		return 1
	}
	_ = conn.Read(func(fd uintptr) bool {
		if _, err := syscall.Read(int(fd), make([]byte, 16)); errors.Is(err, syscall.EAGAIN) {
			open = 1
		}
		return true
	})
	return open
}
