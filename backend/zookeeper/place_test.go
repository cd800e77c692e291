package zookeeper

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dlock/dlock/backend"
)

const (
	token = "0f8fad5b-d9cb-469f-a165-70867728950e"
	id    = "0f8fad5bd9cb469fa16570867728950e"
)

func TestParse(t *testing.T) {
	exclusive, shared := backend.Mode{Kind: backend.Exclusive}, backend.Mode{Kind: backend.Shared}
	slots := backend.Mode{Kind: backend.Slots, N: 3}
	for _, tt := range []struct {
		name  string
		nodes []string
		want  []place
	}{
		{"nothing", nil, nil},
		{"what counts for nobody", []string{"x", "_now_0000000001", "lock-1", "lease-0000000001", "_c_" + id + "-lock-000000001", "a-lock-0000000001x"}, nil},
		{"a pair", []string{"_c_" + id + "__lock__0000000005", "_c_" + id + "-lock-0000000004"}, []place{
			{"_c_" + id + "-lock-0000000004", "_c_" + id + "__lock__0000000005", 4, inLine, token, exclusive, Mutex},
		}},
		{"two of one token", []string{"_c_" + id + "-lock-0000000004", "_c_" + id + "__lock__0000000005", "_c_" + id + "-lock-0000000006", "_c_" + id + "__lock__0000000007"}, []place{
			{"_c_" + id + "-lock-0000000004", "_c_" + id + "__lock__0000000005", 4, inLine, token, exclusive, Mutex},
			{"_c_" + id + "-lock-0000000006", "_c_" + id + "__lock__0000000007", 6, inLine, token, exclusive, Mutex},
		}},
		{"modes and states", []string{
			"_d_" + id + "-s-lock-0000000001", "_d_" + id + "__lock__0000000002", "_t_" + id + "-n3-lock-0000000003", "_t_" + id + "__lock__0000000004",
		}, []place{
			{"_d_" + id + "-s-lock-0000000001", "_d_" + id + "__lock__0000000002", 1, detached, token, shared, Mutex},
			{"_t_" + id + "-n3-lock-0000000003", "_t_" + id + "__lock__0000000004", 3, tail, token, slots, Mutex},
		}},
		{"half a pair is another program's", []string{"_c_" + id + "-lock-0000000009", "_c_" + id + "__lock__0000000005"}, []place{
			{"_c_" + id + "__lock__0000000005", "", 5, inLine, "", exclusive, Mutex},
			{"_c_" + id + "-lock-0000000009", "", 9, inLine, "", exclusive, Mutex},
		}},
		{"Curator, kazoo, and no order by name", []string{
			"_c_2b5b1c5e-0000-4000-8000-000000000000-lock-0000000010", "f00__lock__0000000009", "f00__rlock__0000000011", "lock-0000000008",
		}, []place{
			{"lock-0000000008", "", 8, inLine, "", exclusive, Mutex},
			{"f00__lock__0000000009", "", 9, inLine, "", exclusive, Mutex},
			{"_c_2b5b1c5e-0000-4000-8000-000000000000-lock-0000000010", "", 10, inLine, "", exclusive, Mutex},
			{"f00__rlock__0000000011", "", 11, inLine, "", shared, Mutex},
		}},
		{"read-write locks", []string{"_c_" + id + "-__READ__0000000003", "_c_" + id + "-n3-__WRIT__0000000002", "_c_x-__WRIT__0000000001", "_c_x-__READ__0000000004"}, []place{
			{"_c_x-__WRIT__0000000001", "", 1, inLine, "", exclusive, ReadWrite},
			{"_c_" + id + "-n3-__WRIT__0000000002", "", 2, inLine, token, slots, ReadWrite},
			{"_c_" + id + "-__READ__0000000003", "", 3, inLine, token, shared, ReadWrite},
			{"_c_x-__READ__0000000004", "", 4, inLine, "", shared, ReadWrite},
		}},
		{"no slots, or too many to count", []string{"_c_" + id + "-n0-__WRIT__0000000002", "_c_" + id + "-n99999999999999999999-__WRIT__0000000003"}, []place{
			{"_c_" + id + "-n0-__WRIT__0000000002", "", 2, inLine, "", exclusive, ReadWrite},
			{"_c_" + id + "-n99999999999999999999-__WRIT__0000000003", "", 3, inLine, "", exclusive, ReadWrite},
		}},
		{"past 2^31", []string{"a-lock-2147483647", "a-lock--2147483648"}, []place{
			{"a-lock--2147483648", "", -2147483648, inLine, "", exclusive, Mutex},
			{"a-lock-2147483647", "", 2147483647, inLine, "", exclusive, Mutex},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			slices.Reverse(tt.nodes)
			if got := parse(tt.nodes); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("%+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// TestPrefixesAreParsed: what is made is found again, in every mode, recipe and state.
func TestPrefixesAreParsed(t *testing.T) {
	for _, recipe := range []Recipe{Mutex, ReadWrite} {
		for _, mode := range []backend.Mode{{Kind: backend.Exclusive}, {Kind: backend.Shared}, {Kind: backend.Slots, N: 1}, {Kind: backend.Slots, N: 120}} {
			var nodes []string
			for i, p := range prefixes(recipe, token, mode) {
				nodes = append(nodes, fmt.Sprintf("%s%010d", p, i))
			}
			got := parse(nodes)
			if len(got) != 1 || got[0].token != token || got[0].mode != mode || got[0].recipe != recipe || len(got[0].nodes()) != len(nodes) {
				t.Fatalf("%s %v: %q is parsed as %+v", recipe, mode, nodes, got)
			}
			swapped := got[0].as(detached)
			if again := parse(swapped.nodes()); !reflect.DeepEqual(again, []place{swapped}) {
				t.Errorf("%q is parsed as %+v", swapped.nodes(), again)
			}
			// Each of the two libraries sorts by what follows its own word, and must find
			// nothing of its own in the other's node.
			if recipe == Mutex && (strings.Contains(nodes[1], "lock-") || strings.Contains(nodes[0], "__lock__")) {
				t.Errorf("%q: one of them counts for both", nodes)
			}
		}
	}
}

func TestNodeNames(t *testing.T) {
	for _, tt := range []struct{ parent, name, want string }{
		{"", "backup", "backup"},
		{"", "a/b", "a%2Fb"},
		{"", "50%", "50%25"},
		{"", "日本 ü", "日本 ü"},
		{"", "😀", "%F0%9F%98%80"},
		{"", "\ue000\uf8ff\uffff", "%EE%80%80%EF%A3%BF%EF%BF%BF"},
		{"", ".", "%2E"},
		{"", "..", "%2E."},
		{"", "...", "..."},
		{"", "zookeeper", "%7Aookeeper"},
		{"/a", "zookeeper", "zookeeper"},
		{"", "lock-0000000001", "lock-000000000%31"},
		{"", "lock-000000001", "lock-000000001"},
	} {
		if got := nodeName(tt.parent, tt.name); got != tt.want {
			t.Errorf("%q below %q is %q, want %q", tt.name, tt.parent, got, tt.want)
		}
		if back, ok := backend.Unescape(tt.want); !ok || back != tt.name {
			t.Errorf("%q is read as %q", tt.want, back)
		}
	}
}
