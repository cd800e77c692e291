package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
)

// serverError is one kind of error that a Redis server sends.
type serverError struct {
	prefix string
	kind   error
	final  bool   // asking again will not help
	advice string // what it means, in place of the server's own words; %s is the address
}

// serverErrors are the ones that mean something to a user. The rest is
// backend.ErrUnavailable in the server's own words.
var serverErrors = []serverError{
	{"NOAUTH", backend.ErrDenied, true, "%s wants a password: put it into the URL, redis://:PASSWORD@host, and the URL into a file (--backend-file)"},
	{"ERR Protocol error: unauthenticated", backend.ErrDenied, true, "%s wants a password: put it into the URL, redis://:PASSWORD@host, and the URL into a file (--backend-file)"}, // of a command as long as a take
	{"WRONGPASS", backend.ErrDenied, true, "%s refuses this user name or password"},
	{"NOPERM", backend.ErrDenied, true, "%s: the ACL of this user does not allow what dlock needs (EVALSHA, EVAL, the commands of its scripts, keys and channels of its namespace)"},
	{"MOVED", backend.ErrInvalid, true, "%s is a node of a cluster: use redis+cluster:// in its URL"},
	{"ASK", backend.ErrInvalid, true, "%s is a node of a cluster: use redis+cluster:// in its URL"},
	{"CROSSSLOT", backend.ErrInvalid, true, "%s is a node of a cluster: use redis+cluster:// in its URL"},
	{"READONLY", backend.ErrUnavailable, false, "%s is a replica, and cannot be written: name its primary, or use redis+sentinel://"},
	{"LOADING", backend.ErrUnavailable, false, "%s is still loading its data"},
	{"WRONGTYPE", backend.ErrUnavailable, true, "%s: a key of this lock holds something that is no lock"},
	{"OOM", backend.ErrUnavailable, false, "%s is out of memory (maxmemory)"},
	{"MISCONF", backend.ErrUnavailable, false, "%s cannot write its data to disk and refuses all writes"},
	{"NOREPLICAS", backend.ErrUnavailable, false, "%s has too few replicas (min-replicas-to-write) and refuses all writes"},
	{"CLUSTERDOWN", backend.ErrUnavailable, false, "%s: the cluster is down"},
	{"ERR This instance has cluster support disabled", backend.ErrInvalid, true, "%s is no cluster: use redis:// in its URL"},
	{"ERR DB index is out of range", backend.ErrInvalid, true, "%s has no such database number"},
	{"ERR syntax error", backend.ErrUnavailable, true, "%s is older than Redis 6.2, which dlock needs"},
	{"ERR unknown command", backend.ErrUnsupported, true, "%s does not know a command that dlock needs (EVALSHA, EVAL)"},
}

// opError is an error of the service, told in words that hold no secret.
type opError struct {
	msg       string
	kind, err error
	answered  bool // the server said it, so nothing was done
	final     bool // asking again will not help
}

// Error returns the words.
func (e *opError) Error() string { return e.msg }

// Unwrap returns the sentinel and what the library said.
func (e *opError) Unwrap() []error { return []error{e.kind, e.err} }

// noAnswer is the error of a request that was given up because of cause.
func (b *Backend) noAnswer(cause error) error {
	return &opError{msg: b.opts.address() + " does not answer", kind: backend.ErrUnavailable, err: cause}
}

// givenUp is err, the last of several tries, with the cause for which there are no more.
func givenUp(err, cause error) error {
	return &opError{msg: err.Error(), kind: backend.ErrUnavailable, err: errors.Join(err, cause)}
}

// translate turns an error of the client library into one of backend's.
func (b *Backend) translate(err error) error {
	address := b.opts.address()
	if answer := redis.Error(nil); errors.As(err, &answer) && !errors.Is(err, redis.Nil) {
		return fromServer(address, answer)
	}
	msg := fmt.Sprintf("%s: %s", address, strings.ReplaceAll(err.Error(), "\n", "; "))
	switch dns := (*net.DNSError)(nil); {
	case errors.As(err, &dns):
		msg = fmt.Sprintf("%s: the host name %s cannot be resolved", address, dns.Name)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), isTimeout(err):
		return b.noAnswer(err)
	}
	return &opError{msg: msg, kind: backend.ErrUnavailable, err: err}
}

// fromServer finds what the server's error means. One from inside a script has
// its prefix after other words on older servers.
func fromServer(address string, err redis.Error) error {
	text := err.Error()
	for _, e := range serverErrors {
		if strings.HasPrefix(text, e.prefix) || strings.Contains(text, "-"+e.prefix) || strings.Contains(text, ": "+e.prefix) {
			return &opError{msg: fmt.Sprintf(e.advice, address), kind: e.kind, err: err, answered: true, final: e.final}
		}
	}
	return &opError{msg: address + ": " + text, kind: backend.ErrUnavailable, err: err, answered: true}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// answered tells whether an error is the server's own word.
func answered(err error) bool {
	op := (*opError)(nil)
	return errors.As(err, &op) && op.answered
}

// passing tells whether an error may be gone at the next try.
func passing(err error) bool {
	op := (*opError)(nil)
	return errors.Is(err, backend.ErrUnavailable) && !(errors.As(err, &op) && op.final)
}
