package zookeeper

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/line"
	"github.com/dlock/dlock/internal/lazy"
)

// place is one contender in the line, as the name of its node tells; dlock's own have a
// second node, the twin, for kazoo.
//
//	_c_<id>-lock-0000000004         a contender, ephemeral; exclusive
//	_c_<id>__lock__0000000005       its twin
//	_c_<id>-s-lock-…                shared
//	_c_<id>-n3-lock-…               slots
//	_c_<id>-__READ__…               shared, with recipe=rwlock; no twin
//	_c_<id>-__WRIT__…               exclusive; slots as above
//	_d_<id>…                        a detached hold, persistent
//	_t_<id>…                        a tail, persistent
//
// The id is the token without its dashes. Curator takes all but the readers for
// exclusive, and kazoo all. Each sorts the other's nodes behind its own, since they
// begin with an underscore.
type place struct {
	node, twin string
	seq        int64
	state      state
	token      string // empty: another program's
	mode       backend.Mode
	recipe     Recipe
}

// state is the letter with which a node of ours begins.
type state string

// The states.
const (
	inLine   state = "c"
	detached state = "d"
	tail     state = "t"
)

var (
	// anyPlace matches the nodes that count for Curator or kazoo.
	anyPlace = lazy.Regexp(`(lock-|__lock__|__rlock__|__READ__|__WRIT__)(-?[0-9]{10})$`)
	// ourPlace matches ours, and those of go-zookeeper's own lock, which have no twin.
	ourPlace = lazy.Regexp(`^_([cdt])_([0-9a-f]{32})(-s|-n[0-9]+)?-(lock-|__READ__|__WRIT__)(-?[0-9]{10})$`)
	ourTwin  = lazy.Regexp(`^_([cdt])_([0-9a-f]{32})__lock__([0-9]{10})$`)
)

func isPlace(node string) bool { return anyPlace().MatchString(node) }

// parse finds the line in a list of nodes. Others that may be there count for nobody.
func parse(nodes []string) []place {
	twins := map[pair]string{}
	for _, n := range nodes {
		if m := ourTwin().FindStringSubmatch(n); m != nil {
			seq, _ := strconv.ParseInt(m[3], 10, 64) // it matches
			twins[pair{m[1], m[2], seq - 1}] = n
		}
	}
	var list []place
	paired := map[string]bool{}
	for _, n := range nodes {
		if p, ok := parseOurs(n, twins); ok {
			list = append(list, p)
			paired[p.twin] = true
		}
	}
	for _, n := range nodes {
		if m := anyPlace().FindStringSubmatch(n); m != nil && !paired[n] && !slices.ContainsFunc(list, func(p place) bool { return p.node == n }) {
			list = append(list, foreign(n, m[1], m[2]))
		}
	}
	slices.SortFunc(list, func(a, b place) int { return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.node, b.node)) })
	return list
}

// pair is what the two nodes of a pair have in common; the twin, which is made in the
// same step, has the next number.
type pair struct {
	state, id string
	seq       int64
}

func parseOurs(node string, twins map[pair]string) (place, bool) {
	m := ourPlace().FindStringSubmatch(node)
	if m == nil {
		return place{}, false
	}
	seq, err := strconv.ParseInt(m[5], 10, 64)
	if err != nil {
		return place{}, false
	}
	p := place{node: node, twin: twins[pair{m[1], m[2], seq}], seq: seq, state: state(m[1]), mode: backend.Mode{Kind: backend.Exclusive}, recipe: recipeOf(m[4])}
	if p.recipe == Mutex && p.twin == "" {
		return place{}, false
	}
	id, err := uuid.Parse(m[2])
	if err != nil {
		return place{}, false
	}
	switch p.token = id.String(); {
	case m[3] == "-s", m[4] == "__READ__":
		p.mode.Kind = backend.Shared
	case m[3] != "":
		n, err := strconv.Atoi(m[3][len("-n"):])
		if err != nil || n < 1 {
			return place{}, false
		}
		p.mode = backend.Mode{Kind: backend.Slots, N: n}
	}
	return p, true
}

func foreign(node, kind, seq string) place {
	p := place{node: node, state: inLine, mode: backend.Mode{Kind: backend.Exclusive}, recipe: recipeOf(kind)}
	if kind == "__rlock__" || kind == "__READ__" {
		p.mode.Kind = backend.Shared
	}
	p.seq, _ = strconv.ParseInt(seq, 10, 64) // it matches
	return p
}

func recipeOf(kind string) Recipe {
	if kind == "__READ__" || kind == "__WRIT__" {
		return ReadWrite
	}
	return Mutex
}

// contenders is the line as package line wants it.
func contenders(places []place) []line.Contender {
	list := make([]line.Contender, len(places))
	for i, p := range places {
		list[i] = line.Contender{Mode: p.mode, Absent: p.token == "" || p.leased(), Leased: p.leased()}
	}
	return list
}

// leased tells whether the place has no process behind it, but a lease.
func (p place) leased() bool { return p.state != inLine }

// nodes lists the place's nodes.
func (p place) nodes() []string {
	if p.twin == "" {
		return []string{p.node}
	}
	return []string{p.node, p.twin}
}

// as is the same place in the line in another state.
func (p place) as(s state) place {
	p.state, p.node = s, "_"+string(s)+p.node[2:]
	if p.twin != "" {
		p.twin = "_" + string(s) + p.twin[2:]
	}
	return p
}

// idOf is a token as nodes have it.
func idOf(token string) string { return strings.ReplaceAll(token, "-", "") }

// isToken tells whether s is a UUID in the one form that we use.
func isToken(s string) bool {
	id, err := uuid.Parse(s)
	return err == nil && id.String() == s
}

// prefixes are the names of the nodes to be made for a contender, without their
// numbers.
func prefixes(recipe Recipe, token string, mode backend.Mode) []string {
	word := "-"
	if mode.Kind == backend.Slots {
		word = "-n" + strconv.Itoa(mode.N) + "-"
	}
	begin := "_" + string(inLine) + "_" + idOf(token)
	switch {
	case recipe == ReadWrite && mode.Kind == backend.Shared:
		return []string{begin + "-__READ__"}
	case recipe == ReadWrite:
		return []string{begin + word + "__WRIT__"}
	case mode.Kind == backend.Shared:
		word = "-s-"
	}
	return []string{begin + word + "lock-", begin + "__lock__"}
}
