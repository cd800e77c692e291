package torture_test

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest/torture"
)

// control is a broken lock program, with what brings its flaw to light.
type control struct {
	flaw    string
	passes  bool // it has no flaw: what the harness finds would be the harness's own
	brief   bool // its flaw shows only at the end
	ttl     time.Duration
	work    time.Duration
	flavour string
	clients int // that look at the lock all the time
	faults  []torture.Fault
}

var controls = []control{
	{flaw: "none", passes: true, faults: slices.Concat(torture.Pick(time.Second, "kill dlock", "stop dlock"), torture.Pick(3*time.Second, "hole", "late replies", "late requests", "freeze all"))},
	{flaw: "naive", passes: true, work: 3 * time.Second, faults: slices.Concat(torture.Pick(3*time.Second, "freeze all"), torture.Pick(time.Second, "terminate"))},
	{flaw: "setnx expire", brief: true, faults: torture.Pick(200*time.Millisecond, "kill dlock")},
	{flaw: "getset"},
	{flaw: "blind del", faults: torture.Pick(300*time.Millisecond, "stop dlock")},
	{flaw: "get then del", work: 150 * time.Millisecond, faults: torture.Pick(300*time.Millisecond, "stop dlock", "stop dlock", "stop dlock")},
	{flaw: "no renewal", work: 1500 * time.Millisecond},
	{flaw: "set", work: 12 * time.Second, faults: torture.Pick(time.Second, "freeze all")},
	{flaw: "from the reply", ttl: 3 * time.Second, work: 20 * time.Second, flavour: "big", clients: 1, faults: []torture.Fault{torture.LateThenSilent(900*time.Millisecond, 4500*time.Millisecond)}},
	{flaw: "kill at the deadline", work: 4 * time.Second, flavour: "big", clients: 1, faults: torture.Pick(500*time.Millisecond, "hole")},
	{flaw: "direct child", work: 12 * time.Second, flavour: "child", faults: torture.Pick(time.Second, "freeze all")},
	{flaw: "early release", work: time.Second, flavour: "stubborn", faults: torture.Pick(500*time.Millisecond, "terminate")},
}

// tries is how often the harness may look for a flaw.
const tries = 3

// TestControls lets broken lock programs loose: the harness must find fault with each,
// or it proves nothing of the others.
func TestControls(t *testing.T) {
	for _, c := range controls {
		t.Run(c.flaw, func(t *testing.T) {
			report := c.run(t)
			found := report.Findings()
			for range tries - 1 { // a machine that is busy gives a flaw fewer chances
				if c.passes || len(found) > 0 {
					break
				}
				report = c.run(t)
				found = report.Findings()
			}
			t.Logf("%d holds: %v", report.Holds, found)
			if c.passes != (len(found) == 0) {
				t.Errorf("%s, seed %d, %s: found %v\n%s", c.flaw, report.Seed, report.Details(), found, report.Timeline)
			}
		})
	}
}

func (c control) run(t *testing.T) torture.Report {
	service, _ := redisService(t)
	service.Leftovers = nil
	// All go one way, but for the client, which goes straight to the server.
	way := service.Ways[0]
	service.Ways, service.Relays = []string{way, way, way, way, service.URL}, service.Relays[:1]
	service.Open = openPlain
	duration, ttl := time.Minute, time.Second
	if c.passes || c.brief {
		duration = 10 * time.Second
	}
	if c.ttl > 0 {
		ttl = c.ttl
	}
	program := torture.Build(t, "broken")
	return torture.Run(t, torture.Config{
		Service: service, Seed: uint64(time.Now().UnixNano()), Duration: duration, Processes: 4, Clients: c.clients, ExclusiveClients: true,
		Faults: c.faults, Until: !c.passes, Patience: 10*time.Second + 5*c.work,
		Locker: func(way string, choice *torture.Choice) []string {
			choice.Mode = backend.Mode{Kind: backend.Exclusive}
			choice.Flavour = "plain"
			if c.flavour != "" {
				choice.Flavour = c.flavour
			}
			if c.work > 0 {
				choice.Work = c.work
			}
			u, err := url.Parse(way)
			if err != nil {
				t.Error(err)
			}
			return []string{program, c.flaw, u.Host, "t", ttl.String(), "--"}
		},
	})
}
