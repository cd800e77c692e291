package bench

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// seconds is a duration as JSON has it.
type seconds time.Duration

// MarshalJSON writes seconds.
func (s seconds) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(s).Seconds()) }

// Report is what was measured. As JSON, all times are in seconds.
type Report struct {
	Clients     int       `json:"clients"`
	Hold        seconds   `json:"hold_seconds"`
	Interrupted bool      `json:"interrupted,omitempty"`
	Services    []*Result `json:"services"`
}

// Result is what was measured of one service; what was not run is nil.
type Result struct {
	Service     string     `json:"service"`
	Uncontended []*Load    `json:"uncontended,omitempty"`
	Contention  *Contended `json:"contention,omitempty"`
	Processes   *Programs  `json:"processes,omitempty"`
	Crash       *Crashed   `json:"crash,omitempty"`
	Tally
	Errors     int      `json:"errors"`
	FirstError string   `json:"first_error,omitempty"`
	Left       []string `json:"left,omitempty"` // on the service, and why

	mu sync.Mutex
}

// Load is one number of clients, each with a lock of its own.
type Load struct {
	Clients int      `json:"clients"`
	Pair    *Latency `json:"pair"` // one take and one release

	time time.Duration
}

// Rate is the number of pairs in a second, of all clients together.
func (l *Load) Rate() float64 { return per(float64(l.Pair.Count()), l.time.Seconds()) }

// Contended is one lock that all clients want.
type Contended struct {
	Waiters  int      `json:"waiters"`
	HandOver *Latency `json:"hand_over"` // from the beginning of a release to the next one's turn

	turns    []int // of each client
	drained  int   // turns of those that waited when the time was over
	draining time.Duration
	requests uint64 // that the service counted
	counted  int    // turns meanwhile
}

// Fairness is Jain's index of the clients' turns: 1 if all had as many, 1/n if one had all.
// (Jain, Chiu, Hawe: A Quantitative Measure of Fairness, DEC-TR-301, 1984.)
func (c *Contended) Fairness() float64 {
	var sum, squares float64
	for _, n := range c.turns {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return per(sum*sum, float64(len(c.turns))*squares)
}

// Drain is how long the waiters took to have a turn each, as a multiple of the time for
// which they held the lock.
func (c *Contended) Drain(hold time.Duration) float64 {
	return per(c.draining.Seconds(), float64(c.drained)*hold.Seconds())
}

// Cost is the number of the service's requests for one turn, renewals and waits included;
// zero where it cannot tell.
func (c *Contended) Cost() float64 { return per(float64(c.requests), float64(c.counted)) }

// Programs are whole dlock run processes.
type Programs struct {
	Clients  int      `json:"clients"`
	Alone    *Latency `json:"alone"`    // one after the other
	Together *Latency `json:"together"` // all clients at once, for one lock, waiting included

	aloneTime, time time.Duration
}

// AloneRate is the number of processes in a second, one after the other.
func (p *Programs) AloneRate() float64 { return per(float64(p.Alone.Count()), p.aloneTime.Seconds()) }

// Rate is the number of processes in a second that had their turn, of all clients together.
func (p *Programs) Rate() float64 { return per(float64(p.Together.Count()), p.time.Seconds()) }

// Crashed is the time from SIGKILL of a dlock run until the next one has its lock.
type Crashed struct {
	TTL  seconds  `json:"ttl_seconds"` // of the one that was killed
	Next *Latency `json:"next"`
}

func per(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (r *Result) saw(t Tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Holds += t.Holds
	r.Overlaps += t.Overlaps
	r.Regressions += t.Regressions
}

func (r *Result) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Errors++; r.Errors == 1 {
		r.FirstError = err.Error()
	}
}

// Latency is a distribution of times.
type Latency struct {
	mu   sync.Mutex
	hist *hdrhistogram.Histogram // in µs
}

// newLatency has three digits up to an hour.
func newLatency() *Latency {
	return &Latency{hist: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3)}
}

func (l *Latency) record(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.hist.RecordValue(min(max(1, d.Microseconds()), int64(time.Hour/time.Microsecond))) // it is within the range
}

// Count is the number of times that were measured.
func (l *Latency) Count() int64 { return l.hist.TotalCount() }

// At is the time that so many percent of all stay within.
func (l *Latency) At(percent float64) time.Duration {
	return time.Duration(l.hist.ValueAtPercentile(percent)) * time.Microsecond
}

// Max is the longest time.
func (l *Latency) Max() time.Duration { return time.Duration(l.hist.Max()) * time.Microsecond }

// MarshalJSON writes the count and the usual percentiles.
func (l *Latency) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Count int64   `json:"count"`
		P50   seconds `json:"p50_seconds"`
		P90   seconds `json:"p90_seconds"`
		P99   seconds `json:"p99_seconds"`
		Max   seconds `json:"max_seconds"`
	}{l.Count(), seconds(l.At(50)), seconds(l.At(90)), seconds(l.At(99)), seconds(l.Max())})
}

// MarshalJSON adds the rate.
func (l *Load) MarshalJSON() ([]byte, error) {
	type plain Load
	return json.Marshal(struct {
		*plain
		Rate float64 `json:"pairs_per_second"`
	}{(*plain)(l), l.Rate()})
}

// MarshalJSON adds the rate.
func (p *Programs) MarshalJSON() ([]byte, error) {
	type plain Programs
	return json.Marshal(struct {
		*plain
		Rate float64 `json:"processes_per_second"`
	}{(*plain)(p), p.Rate()})
}

// MarshalJSON writes the figures that follow from what was counted.
func (r Report) MarshalJSON() ([]byte, error) {
	type contended struct {
		*Contended
		Fairness float64 `json:"fairness"`
		Drain    float64 `json:"drain_times_ideal"`
		Cost     float64 `json:"requests_per_turn,omitempty"`
	}
	type result struct {
		*Result
		Contention *contended `json:"contention,omitempty"`
	}
	type report Report
	var results []result
	for _, s := range r.Services {
		out := result{Result: s}
		if c := s.Contention; c != nil {
			out.Contention = &contended{c, c.Fairness(), c.Drain(time.Duration(r.Hold)), c.Cost()}
		}
		results = append(results, out)
	}
	return json.Marshal(struct {
		report
		Services []result `json:"services"`
	}{report(r), results})
}
