package line_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/line"
)

var (
	exclusive = backend.Mode{Kind: backend.Exclusive}
	shared    = backend.Mode{Kind: backend.Shared}
)

func slots(n int) backend.Mode { return backend.Mode{Kind: backend.Slots, N: n} }

// parse reads a line: one word a contender, "x", "s" or a number of slots; then "f" for
// another program's, "d" for a detached hold and "e" for an expired one.
func parse(text string) []line.Contender {
	var l []line.Contender
	for word := range strings.FieldsSeq(text) {
		c := line.Contender{Mode: exclusive}
		switch {
		case word[0] == 's':
			c.Mode = shared
		case word[0] != 'x':
			c.Mode = slots(int(word[0] - '0'))
		}
		c.Absent = strings.ContainsAny(word[1:], "fde")
		c.Leased = strings.ContainsAny(word[1:], "de")
		c.Expired = strings.Contains(word[1:], "e")
		l = append(l, c)
	}
	return l
}

func TestDecide(t *testing.T) {
	none := -1
	for _, tt := range []struct {
		line string // the last one decides
		want line.Decision
	}{
		{"x", line.Decision{Admitted: true}},
		{"s", line.Decision{Admitted: true}},
		{"2", line.Decision{Admitted: true}},
		{"x x", line.Decision{Watch: []int{0}}},
		{"x x x x", line.Decision{Watch: []int{2}, Ahead: 2}},
		{"s s s", line.Decision{Admitted: true}},
		{"s s x", line.Decision{Watch: []int{1}}},
		{"s x s", line.Decision{Watch: []int{1}, Ahead: 1}},
		{"x s s s", line.Decision{Watch: []int{0}, Ahead: 2}},
		{"x s x s s", line.Decision{Watch: []int{2}, Ahead: 3}},
		{"2 2", line.Decision{Admitted: true}},
		{"2 2 2", line.Decision{Watch: []int{0, 1}}},
		{"2 2 2 2", line.Decision{Watch: []int{2}, Changes: true, Ahead: 1}},
		{"2 2 x", line.Decision{Watch: []int{1}}},
		{"x 2", line.Decision{Watch: []int{0}}},
		{"x 2 2", line.Decision{Watch: []int{0}, Ahead: 1}},
		{"x 2 2 2", line.Decision{Watch: []int{2}, Changes: true, Ahead: 2}},
		{"s 2", line.Decision{Watch: []int{0}}},
		{"2 s", line.Decision{Watch: []int{0}}},

		{"2 3", line.Decision{Watch: []int{0}, Conflict: 1}},
		{"x 2 3", line.Decision{Watch: []int{1}, Conflict: 2, Ahead: 1}},
		{"2e 3", line.Decision{Watch: []int{0}, Evict: []int{0}}},

		{"xd x", line.Decision{Watch: []int{0}, Mind: []int{0}}},
		{"xe x", line.Decision{Watch: []int{0}, Evict: []int{0}}},
		{"xe x x", line.Decision{Watch: []int{1}, Ahead: 1}},                      // the one before does it
		{"xe xf x", line.Decision{Watch: []int{0, 1}, Evict: []int{0}, Ahead: 1}}, // nobody else will
		{"xd xf x", line.Decision{Watch: []int{0, 1}, Mind: []int{0}, Ahead: 1}},
		{"sd se x", line.Decision{Watch: []int{0, 1}, Evict: []int{1}, Mind: []int{0}}},
		{"xd s s", line.Decision{Watch: []int{0}, Mind: []int{0}, Ahead: 1}}, // each: any of them may go
		{"2d 2e 2", line.Decision{Watch: []int{0, 1}, Evict: []int{1}, Mind: []int{0}}},
		{"sd s", line.Decision{Admitted: true}},
		{"x x xf xf x", line.Decision{Watch: []int{1, 3}, Ahead: 3}}, // the one that looks after what is before it
	} {
		t.Run(tt.line, func(t *testing.T) {
			tt.want.Conflict-- // so that the table need not mention none
			if tt.want.Conflict < none {
				tt.want.Conflict = none
			}
			l := parse(tt.line)
			if got := line.Decide(l, len(l)-1); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestHolders(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "x": 1, "x x": 1, "s s x s": 2, "3 3 3 3": 3, "2 x 2": 1, "2 3": 1, "xe x": 1, "s 2": 1,
	} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			if got := line.Holders(parse(text)); got != want {
				t.Errorf("%d, want %d", got, want)
			}
		})
	}
}
