package consul

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/dlock/dlock/backend"
)

// errSession means that a session has ended.
var errSession = errors.New("the session has ended")

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

// passing tells whether an error may be gone at the next try.
func passing(err error) bool {
	o := (*opError)(nil)
	return errors.Is(err, errSession) || errors.Is(err, backend.ErrUnavailable) && !(errors.As(err, &o) && o.final)
}

// givenUp is err, the last of several tries, with the cause for which there are no more.
func givenUp(err, cause error) error {
	return &opError{msg: err.Error(), kind: backend.ErrUnavailable, err: errors.Join(err, cause)}
}

// translate turns an error of the client library into one of backend's. A request that
// was called off with a cause has that as its error.
func (o *Options) translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	address := o.address()
	if status := (api.StatusError{}); errors.As(err, &status) {
		return o.fromServer(status.Code, strings.TrimSpace(status.Body), err)
	}
	if body, ok := strings.CutPrefix(err.Error(), "Failed request: "); ok { // of a transaction, whose status the library drops
		return o.fromServer(http.StatusInternalServerError, strings.TrimSpace(body), err)
	}
	e := &opError{kind: backend.ErrUnavailable, err: err}
	cause := err
	if u := (*url.Error)(nil); errors.As(err, &u) {
		cause = u.Err
	}
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &dns):
		e.msg = fmt.Sprintf("%s: the host name %s cannot be resolved", address, dns.Name)
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.As(err, &timeout) && timeout.Timeout():
		e.msg = address + " does not answer"
	default:
		e.msg = fmt.Sprintf("%s: %s", address, strings.ReplaceAll(cause.Error(), "\n", "; "))
	}
	return e
}

// fromServer finds what an answer other than 200 means. Its words name a token's
// accessor at most, never the token.
func (o *Options) fromServer(code int, body string, err error) error {
	address := o.address()
	e := &opError{kind: backend.ErrUnavailable, err: err, msg: fmt.Sprintf("%s: %s", address, strings.ReplaceAll(body, "\n", "; "))}
	switch {
	case strings.Contains(body, "invalid session"), strings.Contains(body, "Session id") && strings.Contains(body, "not found"):
		e.kind, e.msg = errSession, address+": "+errSession.Error()
	case code == http.StatusUnauthorized, code == http.StatusForbidden, strings.Contains(body, "ACL not found"), strings.Contains(body, "Permission denied"):
		e.kind, e.final = backend.ErrDenied, true
		e.msg = address + " refuses the ACL token, or it may not do what dlock needs: session write, and key write below " + prefixWords(o)
	case code == http.StatusTooManyRequests, strings.Contains(body, "too many concurrent connections"):
		e.msg = address + " has too many connections from this host (http_max_conns_per_client)"
	case code == http.StatusBadRequest, code == http.StatusRequestEntityTooLarge:
		e.final = true
	case body == "":
		e.msg = fmt.Sprintf("%s: %s; it may have no leader now", address, http.StatusText(code))
	}
	return e
}

func prefixWords(o *Options) string {
	p := (&Backend{opts: *o}).prefix()
	if p == "" {
		return "all prefixes"
	}
	return p
}
