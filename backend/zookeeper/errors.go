package zookeeper

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
)

// opError is an error of the service, told in words that hold no secret.
type opError struct {
	msg       string
	kind, err error
	final     bool // asking again will not help
}

// Error returns the words.
func (e *opError) Error() string { return e.msg }

// Unwrap returns the sentinel and what the library said.
func (e *opError) Unwrap() []error { return []error{e.kind, e.err} }

// unanswered are the library's errors that say nothing about the outcome; all others
// came from the server.
var unanswered = []error{
	zk.ErrConnectionClosed, zk.ErrClosing, zk.ErrNoServer, zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrNothing,
}

// answered tells whether an error is the server's own word, and so nothing was done.
func answered(err error) bool {
	if op := (*opError)(nil); errors.As(err, &op) {
		err = op.err
	}
	var network net.Error
	return err != nil && !errors.As(err, &network) &&
		!slices.ContainsFunc(unanswered, func(u error) bool { return errors.Is(err, u) })
}

// noAnswer is the error of a request that was given up because of cause; why says what
// is wrong with the connection, if that is known.
func (b *Backend) noAnswer(why, cause error) error {
	e := &opError{msg: b.opts.address() + " does not answer", kind: backend.ErrUnavailable, err: cause}
	switch dns := (*net.DNSError)(nil); {
	case errors.As(why, &dns):
		e.msg = fmt.Sprintf("%s: the host name %s cannot be resolved", b.opts.address(), dns.Name)
	case why != nil:
		e.msg += ": " + why.Error()
	}
	return e
}

// givenUp is err, the last of several tries, with the cause for which there are no more.
func givenUp(err, cause error) error {
	return &opError{msg: err.Error(), kind: backend.ErrUnavailable, err: errors.Join(err, cause)}
}

// translate turns an error of the client library into one of backend's; the library's
// own can still be found in it.
func (b *Backend) translate(err, why error) error {
	address := b.opts.address()
	e := &opError{kind: backend.ErrUnavailable, err: err}
	switch {
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL):
		e.kind, e.final = backend.ErrDenied, true
		e.msg = address + ": the ACL of a node does not allow what dlock needs: to read, create, write and delete below it"
		if b.opts.AuthScheme == "" {
			e.msg += " (a user goes into the URL, zk://USER:PASSWORD@host, and the URL into a file, --backend-file)"
		}
	case errors.Is(err, zk.ErrSessionExpired):
		e.msg = address + ": the session has expired"
	case !answered(err):
		return b.noAnswer(why, err)
	default:
		e.final = errors.Is(err, zk.ErrBadArguments) || errors.Is(err, zk.ErrInvalidPath)
		e.msg = fmt.Sprintf("%s: %s", address, strings.TrimPrefix(err.Error(), "zk: "))
	}
	return e
}

// passing tells whether an error may be gone at the next try.
func passing(err error) bool {
	op := (*opError)(nil)
	return errors.Is(err, backend.ErrUnavailable) && !(errors.As(err, &op) && op.final)
}

// is tells whether the server said one of these.
func is(err error, any ...error) bool {
	return slices.ContainsFunc(any, func(e error) bool { return errors.Is(err, e) })
}

// unimplemented tells whether the server does not know the request.
func unimplemented(err error) bool {
	op := (*opError)(nil)
	return errors.As(err, &op) && op.err.Error() == "unknown error: -6"
}
