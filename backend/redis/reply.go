package redis

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/dlock/dlock/backend"
)

// reply is what a script returned: a status, the server's time in µs, and what belongs
// to the status. An element that is missing or of another type reads as its zero value:
// the scripts are ours, and what stands in the keys may be anybody's.
type reply []any

func parse(v any) (reply, error) {
	if r, ok := v.([]any); ok && len(r) >= 2 {
		return r, nil
	}
	return nil, fmt.Errorf("%w: unexpected reply of a script", backend.ErrUnavailable)
}

func (r reply) status() string { return r.text(0) }

func (r reply) text(i int) string {
	if i < len(r) {
		s, _ := r[i].(string)
		return s
	}
	return ""
}

func (r reply) number(i int) int64 {
	if i < len(r) {
		n, _ := r[i].(int64)
		return n
	}
	return 0
}

func (r reply) list(i int) reply {
	if i < len(r) {
		l, _ := r[i].([]any)
		return l
	}
	return nil
}

func (r reply) fence(i int) uint64 {
	n, _ := strconv.ParseUint(r.text(i), 10, 64)
	return n
}

func (r reply) ms(i int) time.Duration { return backend.Millis(r.number(i)) }

// refusal is the error that the status stands for; nil for the good ones.
func (r reply) refusal() error {
	switch r.status() {
	case "held", "done", "state", "busy":
		return nil
	case "lost":
		return backend.ErrLost
	case "revoked":
		return backend.ErrRevoked
	case "withdrawn":
		return fmt.Errorf("%w: the token was withdrawn", backend.ErrLost)
	case "several":
		return fmt.Errorf("%w: several holders' tokens begin so", backend.ErrInvalid)
	case "slots":
		return fmt.Errorf("%w: the lock has %d slots now", backend.ErrInvalid, r.number(2))
	case "mode":
		return fmt.Errorf("%w: the token is in use as %q", backend.ErrInvalid, mode(r.text(2), r.number(3)).String())
	case "unheard":
		return errUnheard
	}
	return fmt.Errorf("%w: a script answered %q", backend.ErrUnavailable, r.status())
}

// errUnheard is the answer to a waiter whose subscription the server does not see.
var errUnheard = fmt.Errorf("%w: a waiter cannot be woken: PUBLISH does not reach its own subscription; "+
	"the user needs an ACL rule for the channels of the namespace, such as &dlock:*, and a proxy must pass pub/sub on", backend.ErrDenied)

// holders reads a list of holders, oldest first.
func (r reply) holders() []backend.Holder {
	var hs []backend.Holder
	for i := range r {
		hs = append(hs, holder(r.list(i)))
	}
	return hs
}

// holder reads {token, kind, mode, n, fence, ms held, ms left, flags, owner, …}.
func holder(r reply) backend.Holder {
	h := backend.Holder{
		Token: r.text(0), Owner: owner(r.text(8), r.text(1)), Mode: mode(r.text(2), r.number(3)),
		Fence: r.fence(4), Held: r.ms(5), Left: r.ms(6), Leased: r.number(6) >= 0,
	}
	for _, f := range r.text(7) {
		h.Revoked = h.Revoked || f == 'r'
		h.Tail = h.Tail || f == 't'
	}
	return h
}

// waiter reads {kind, mode, n, ms waiting, owner, …}.
func waiter(r reply) backend.Waiter {
	return backend.Waiter{Owner: owner(r.text(4), r.text(0)), Mode: mode(r.text(1), r.number(2)), Waiting: r.ms(3)}
}

func mode(kind string, n int64) backend.Mode {
	return backend.Mode{Kind: backend.Kind(kind), N: int(n)}
}

// owner reads the record of an owner; what cannot be read leaves fields unknown.
func owner(text, kind string) backend.Owner {
	var o backend.Owner
	if json.Unmarshal([]byte(text), &o) != nil {
		o = backend.Owner{}
	}
	if o.Kind = backend.OwnerKind(kind); kind == "" {
		o.Kind = backend.Foreign // its record was lost
	}
	return o
}
