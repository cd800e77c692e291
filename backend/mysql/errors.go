package mysql

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock/dlock/backend"
)

// serverError is one kind of error that a server sends.
type serverError struct {
	number uint16
	kind   error
	final  bool   // asking again will not help
	advice string // what it means, in place of the server's own words; %s is the address
}

// Numbers of errors that mean something to the code.
const (
	noSuchTable    = 1146
	noSuchThread   = 1094
	lockWait       = 1205
	interrupted    = 1317
	killed         = 1927
	shutdown       = 1053
	idleTooLong    = 4031
	accessRefused  = 1142
	unknownCommand = 1235
)

// inTheWay are the errors that say no more than that somebody else was at the same row:
// MySQL and MariaDB use different ones for the same.
var inTheWay = []uint16{lockWait, 1213, 1020, 3058, 3572, interrupted}

// serverErrors are the ones that mean something to a user. The rest is
// backend.ErrUnavailable in the server's own words.
var serverErrors = []serverError{
	{1045, backend.ErrDenied, true, "%s refuses this user name or password: put both into the URL, mysql://USER:PASSWORD@host/db, and the URL into a file (--backend-file), or use ?defaults-file"},
	{1698, backend.ErrDenied, true, "%s refuses this user: the account is for another way of logging in, such as the Unix socket (?socket=/path)"},
	{1044, backend.ErrDenied, true, "%s: this user may not use the database: GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON its tables"},
	{accessRefused, backend.ErrDenied, true, "%s: this user lacks a right on the table " + table + ": GRANT SELECT, INSERT, UPDATE, DELETE on it"},
	{1143, backend.ErrDenied, true, "%s: this user lacks a right on a column of the table " + table},
	{1227, backend.ErrDenied, true, "%s: this user lacks a right that is needed for it"},
	{1095, backend.ErrDenied, true, "%s: the holder's connection belongs to another user; all dlocks of a lock should use one, or this one needs the right to end connections"},
	{3118, backend.ErrDenied, true, "%s: this account is locked"},
	{1820, backend.ErrDenied, true, "%s: the password of this account has expired"},
	{1049, backend.ErrUnavailable, true, "%s: there is no such database"},
	{1040, backend.ErrUnavailable, false, "%s has too many connections (max_connections); each contender needs one"},
	{1203, backend.ErrUnavailable, false, "%s: this user has too many connections (max_user_connections); each contender needs one"},
	{1226, backend.ErrUnavailable, false, "%s: this user has used up what the server allows it"},
	{1290, backend.ErrUnavailable, false, "%s is read-only, such as a replica: name its primary"},
	{1792, backend.ErrUnavailable, false, "%s is read-only, such as a replica: name its primary"},
	{1836, backend.ErrUnavailable, false, "%s is read-only, such as a replica: name its primary"},
	{1021, backend.ErrUnavailable, false, "%s: its disk is full"},
	{1114, backend.ErrUnavailable, false, "%s: its disk or tablespace is full"},
	{1665, backend.ErrUnsupported, true, "%s writes its binary log with binlog_format=STATEMENT, which cannot repeat what dlock does; use ROW or MIXED"},
	{unknownCommand, backend.ErrUnsupported, true, "%s does not support named locks (GET_LOCK), as some Galera clusters do not; name a single server"},
	{1054, backend.ErrUnavailable, true, wrongShape},
	{1136, backend.ErrUnavailable, true, wrongShape},
	{1264, backend.ErrUnavailable, true, wrongShape},
	{1364, backend.ErrUnavailable, true, wrongShape},
	{1366, backend.ErrUnavailable, true, wrongShape},
	{1406, backend.ErrUnavailable, true, wrongShape},
	{1348, backend.ErrUnavailable, true, wrongShape},
	{1288, backend.ErrUnavailable, true, wrongShape},
}

// wrongShape is what is said of a table that is not ours.
const wrongShape = "%s: the table " + table + " is not as dlock makes it; move it away, and dlock makes it anew, or make it with: " + ddl

// What has no error of the library.
var (
	errOld       = errors.New("old server")
	errShape     = errors.New("wrong table")
	errTransient = errors.New("somebody is at the door")
)

// opError is an error of the service, told in words that hold no secret.
type opError struct {
	msg       string
	kind, err error
	answered  bool // the server said it, so nothing was done
	final     bool // asking again will not help
	again     bool // somebody else was in the way
}

// Error returns the words.
func (e *opError) Error() string { return e.msg }

// Unwrap returns the sentinel and what the library said.
func (e *opError) Unwrap() []error { return []error{e.kind, e.err} }

// givenUp is err, the last of several tries, with the cause for which there are no more.
func givenUp(err, cause error) error {
	return &opError{msg: err.Error(), kind: backend.ErrUnavailable, err: errors.Join(err, cause)}
}

// translate turns an error of the client library into one of backend's.
func (b *Backend) translate(err error) error {
	address := b.opts.address()
	if answer := (*mysql.MySQLError)(nil); errors.As(err, &answer) {
		return fromServer(address, answer)
	}
	msg := fmt.Sprintf("%s: %v", address, err)
	switch dns := (*net.DNSError)(nil); {
	case errors.As(err, &dns):
		msg = fmt.Sprintf("%s: the host name %s cannot be resolved", address, dns.Name)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), isTimeout(err):
		msg = address + " does not answer"
	case errors.Is(err, mysql.ErrInvalidConn):
		msg = address + " has closed the connection"
	}
	return &opError{msg: msg, kind: backend.ErrUnavailable, err: err}
}

// fromServer finds what the server's error means.
func fromServer(address string, err *mysql.MySQLError) error {
	e := &opError{msg: fmt.Sprintf("%s: %s", address, err.Message), kind: backend.ErrUnavailable, err: err, answered: true}
	for _, n := range inTheWay {
		e.again = e.again || n == err.Number
	}
	switch err.Number {
	case killed, shutdown, idleTooLong: // the connection ends, and what was under way may be done
		e.answered = false
		e.msg = address + " has closed the connection"
	case lockWait:
		e.msg = address + ": somebody keeps a lock on the row of this lock, or on the whole table"
	}
	for _, s := range serverErrors {
		if s.number == err.Number {
			e.msg, e.kind, e.final = fmt.Sprintf(s.advice, address), s.kind, s.final
		}
	}
	return e
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// number is the server's number of an error, or 0.
func number(err error) uint16 {
	if answer := (*mysql.MySQLError)(nil); errors.As(err, &answer) {
		return answer.Number
	}
	return 0
}

// answered tells whether an error is the server's own word, so that nothing was done.
func answered(err error) bool {
	op := (*opError)(nil)
	return errors.As(err, &op) && op.answered
}

// contended tells whether somebody else was in the way.
func contended(err error) bool {
	op := (*opError)(nil)
	return errors.As(err, &op) && op.again
}

// passing tells whether an error may be gone at the next try.
func passing(err error) bool {
	op := (*opError)(nil)
	return errors.Is(err, backend.ErrUnavailable) && !(errors.As(err, &op) && op.final)
}
