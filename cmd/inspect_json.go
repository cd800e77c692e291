package cmd

import (
	"io"
	"time"

	"github.com/dlock/dlock/backend"
)

// The JSON of dlock inspect. Durations are seconds; what is unknown is left out.
type (
	jsonReport struct {
		Time    time.Time    `json:"time"`
		Backend jsonBackend  `json:"backend"`
		Error   string       `json:"error,omitempty"` // why the service did not answer
		Locks   []jsonStatus `json:"locks"`
	}
	jsonBackend struct {
		Kind    string `json:"kind"`
		Address string `json:"address"`
	}
	jsonStatus struct {
		Name     string       `json:"name"`
		State    string       `json:"state"` // held, free or unknown
		Fence    uint64       `json:"fence,omitempty"`
		Holders  []jsonHolder `json:"holders"`
		Waiters  []jsonWaiter `json:"waiters"`
		Problems []string     `json:"problems,omitempty"`
	}
	jsonHolder struct {
		Token   string        `json:"token,omitempty"`
		Mode    backend.Mode  `json:"mode"`
		Owner   backend.Owner `json:"owner"`
		Fence   uint64        `json:"fence,omitempty"`
		Held    *float64      `json:"held_seconds,omitempty"`
		Left    *float64      `json:"left_seconds,omitempty"`
		Revoked bool          `json:"revoked,omitempty"`
		Tail    bool          `json:"tail,omitempty"`
	}
	jsonWaiter struct {
		Mode    backend.Mode  `json:"mode"`
		Owner   backend.Owner `json:"owner"`
		Waiting *float64      `json:"waiting_seconds,omitempty"`
	}
)

// printJSON prints one object, on many lines for people or on one for programs.
func printJSON(out io.Writer, v view, indent bool) error {
	report := jsonReport{
		Time: v.time.Round(time.Millisecond), Backend: jsonBackend{v.limits.Kind, v.limits.Address}, Locks: []jsonStatus{},
	}
	if v.err != nil {
		report.Error = v.err.Error()
	}
	for _, s := range v.list {
		report.Locks = append(report.Locks, toJSON(s))
	}
	return writeJSON(out, report, indent)
}

func toJSON(s backend.Status) jsonStatus {
	j := jsonStatus{
		Name: s.Name, State: stateHeld, Fence: s.Fence, Problems: problems(s),
		Holders: []jsonHolder{}, Waiters: []jsonWaiter{},
	}
	switch {
	case s.Err != nil:
		j.State = stateUnknown
	case len(s.Holders) == 0:
		j.State = stateFree
	}
	for _, h := range s.Holders {
		holder := jsonHolder{Token: h.Token, Mode: h.Mode, Owner: h.Owner, Fence: h.Fence, Revoked: h.Revoked, Tail: h.Tail}
		if h.Held >= 0 {
			seconds := h.Held.Seconds()
			holder.Held = &seconds
		}
		if h.Leased {
			seconds := h.Left.Seconds()
			holder.Left = &seconds
		}
		j.Holders = append(j.Holders, holder)
	}
	for _, w := range s.Waiters {
		waiter := jsonWaiter{Mode: w.Mode, Owner: w.Owner}
		if w.Waiting >= 0 {
			seconds := w.Waiting.Seconds()
			waiter.Waiting = &seconds
		}
		j.Waiters = append(j.Waiters, waiter)
	}
	return j
}
