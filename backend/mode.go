package backend

import "fmt"

// Kind is the kind of a hold.
type Kind string

// The kinds of hold.
const (
	Exclusive Kind = "exclusive" // one holder
	Shared    Kind = "shared"    // any number of shared holders, or one exclusive
	Slots     Kind = "slots"     // at most N holders
)

// Mode is how a lock is held; the zero Mode is not valid.
type Mode struct {
	Kind Kind `json:"kind"`
	N    int  `json:"n,omitempty"` // of Slots; zero elsewhere
}

// String returns "exclusive", "shared" or "slots 3".
func (m Mode) String() string {
	if m.Kind == Slots {
		return fmt.Sprintf("slots %d", m.N)
	}
	return string(m.Kind)
}

// Valid tells whether m is one of the three modes, with a sensible N.
func (m Mode) Valid() bool {
	switch m.Kind {
	case Exclusive, Shared:
		return m.N == 0
	case Slots:
		return m.N >= 1
	}
	return false
}

// Covers tells whether holding m is at least as strong as holding o.
func (m Mode) Covers(o Mode) bool { return m == o || m.Kind == Exclusive }
