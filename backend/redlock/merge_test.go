package redlock

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/backendtest"
	"github.com/dlock/dlock/backend/redis"
)

// TestMerge: what servers show that were not asked at one and the same moment, each as
// "token:slot token:slot …", and the holders that this comes to.
func TestMerge(t *testing.T) {
	two := backendtest.Slots(2)
	for _, tt := range []struct {
		what    string
		mode    backend.Mode
		nodes   int
		servers []string // that answer
		want    string
	}{
		{"nobody", backendtest.Exclusive, 3, []string{"", "", ""}, ""},
		{"a minority is no holder", backendtest.Exclusive, 3, []string{"a:0", "", ""}, ""},
		{"one that may be on a silent server, too", backendtest.Exclusive, 3, []string{"a:0", ""}, "a"},
		{"a hand-over and a silent server", backendtest.Exclusive, 3, []string{"a:0", "b:0"}, ""},
		{"a hand-over that a majority has seen", backendtest.Exclusive, 5, []string{"a:0", "b:0", "b:0", "b:0"}, "b"},
		{"readers", backendtest.Shared, 3, []string{"a:0 b:0", "b:0"}, "a b"},
		{"slots", two, 3, []string{"a:1 b:2", "b:2 a:1", "a:1"}, "a b"},
		{"a contender that has another slot on each server", two, 3, []string{"a:1 c:2", "b:2 c:1", "a:1 b:2"}, "a b"},
		{"three on two slots, one server silent", two, 3, []string{"a:1 b:2", "a:1 c:2"}, "a"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			b := &Backend{nodes: make([]*node, tt.nodes)}
			var lists [][]redis.NodeHolder
			for _, server := range tt.servers {
				var list []redis.NodeHolder
				for _, hold := range strings.Fields(server) {
					token, slot, _ := strings.Cut(hold, ":")
					h := redis.NodeHolder{Holder: backend.Holder{Token: token, Mode: tt.mode}}
					if _, err := fmt.Sscan(slot, &h.Slot); err != nil {
						t.Fatal(err)
					}
					list = append(list, h)
				}
				lists = append(lists, list)
			}
			holders, _ := b.merge(lists, b.majority()-(tt.nodes-len(lists)))
			var got []string
			for _, h := range holders {
				got = append(got, h.Token)
			}
			slices.Sort(got)
			if list := strings.Join(got, " "); list != tt.want {
				t.Errorf("holders %q, want %q", list, tt.want)
			}
		})
	}
}

func TestMostNamed(t *testing.T) {
	for _, c := range []struct {
		fences []uint64
		want   uint64
	}{
		{nil, 0}, {[]uint64{5}, 5}, {[]uint64{9, 5, 5}, 5}, {[]uint64{5, 9, 8, 5, 5}, 5}, {[]uint64{5, 9}, 9},
	} {
		if got := mostNamed(c.fences); got != c.want {
			t.Errorf("%v: %d, want %d", c.fences, got, c.want)
		}
	}
}
