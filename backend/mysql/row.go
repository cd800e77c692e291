package mysql

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
)

// state is a lock as it was read.
type state struct {
	record.Record
	now    record.Time
	row    row
	edited bool            // judge has changed what others have to see
	bad    bool            // the list of holders cannot be read
	settle []record.Holder // those that have lost their connection, as judge found
}

// row is what a write compares, and what it keeps.
type row struct {
	exists  bool
	version uint64
	fence   uint64
	updated int64 // µs
}

// columns are those that state reads, of the table as l.
var columns = nowMicro + ", CONNECTION_ID(), l.version, l.fence, " + micro("l.updated_at") + ", l.token, l.holders, " +
	micro("l.since") + ", " + micro("l.expires") + ", l.ttl_us, l.name"

// Where columns stand.
const (
	colNow = iota
	colConnection
	colVersion
	colFence
	colUpdated
	colToken
	colHolders
	colSince
	colExpires
	colTTL
	colName
	colsEnd
)

// from joins the row to one row that is always there, for the time and the door.
const from = " FROM (SELECT 1 AS one) AS one LEFT JOIN " + table + " AS l ON l.ns = ? AND l.name = ?"

// shared is the token of a row that has several holders, or a tail.
const shared = "*"

// read reads a lock.
func (s *session) read(ctx context.Context, id lockID) (*state, error) {
	v, err := s.one(ctx, "SELECT "+columns+from, id.ns, id.name)
	if number(err) == noSuchTable {
		v, err = s.one(ctx, "SELECT "+nowMicro+", CONNECTION_ID()")
		v = append(v, make(values, colsEnd-len(v))...)
	}
	if err != nil {
		return nil, err
	}
	return s.state(v)
}

// forever is what the end of a hold that ends with its connection reads as, or more.
const forever = 253402214400e6

// state makes a state of columns. Of a hold that is alone, exclusive and no tail, the
// columns count, for those who look at the table or write it themselves; of others
// what the list says.
func (s *session) state(v values) (*state, error) {
	if err := s.identify(v.natural(colConnection)); err != nil {
		return nil, err
	}
	st := &state{now: record.Time(v.number(colNow))}
	if v.null(colVersion) {
		return st, nil
	}
	st.row = row{true, v.natural(colVersion), v.natural(colFence), v.number(colUpdated)}
	st.Fence = st.row.fence
	token := v.text(colToken)
	if token == "" {
		return st, nil
	}
	if text := v.text(colHolders); text != "" && json.Unmarshal([]byte(text), &st.Holders) != nil {
		st.Holders, st.bad = nil, true // it is still taken, by we know not whom
	}
	if len(st.Holders) == 0 {
		st.Holders = []record.Holder{{Token: token, Mode: backend.Mode{Kind: backend.Exclusive}, Owner: backend.Owner{Kind: backend.Foreign}}}
	}
	if h := &st.Holders[0]; h.Token == token {
		h.Fence, h.Since, h.TTL = st.row.fence, record.Time(v.number(colSince)), microseconds(v.number(colTTL))
		if h.Expires = record.Time(v.number(colExpires)); h.Expires >= forever {
			h.Expires = 0
		}
	}
	return st, nil
}

func microseconds(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// identify notes the number of our connection, and finds out if it is another than
// before: then something in between gives one connection to several clients, and
// what we have locked is not ours.
func (s *session) identify(connection uint64) error {
	if s.id != 0 && s.id != connection {
		return &opError{msg: s.b.opts.address() + " is behind a proxy that changes connections between statements; " +
			"locks need the server itself, or a proxy that keeps them", kind: backend.ErrUnsupported, err: errShape, answered: true, final: true}
	}
	s.id = connection
	return nil
}

// write puts the state in the row's place if the row is still as it was read, and
// tells whether it was.
func (s *session) write(ctx context.Context, id lockID, st *state) (bool, error) {
	token, holders, since, expires, ttl := "", []byte(nil), st.now, record.Time(0), time.Duration(0)
	if len(st.Holders) > 0 {
		first := st.Holders[0]
		if token = shared; first.Mode.Kind == backend.Exclusive && !first.Tail {
			token = first.Token
		}
		var err error
		if holders, err = json.Marshal(st.Holders); err != nil {
			return false, fmt.Errorf("holders: %w", err)
		}
		since, ttl = first.Since, first.TTL
		for _, h := range st.Holders {
			if expires = max(expires, h.Expires); h.Expires == 0 {
				expires = forever
				break
			}
		}
	}
	end := []any{token, string(holders), st.Fence, int64(since), int64(min(expires, forever)), ttl.Microseconds()}
	if !st.row.exists {
		r, err := s.exec(ctx, "INSERT IGNORE INTO "+table+" (token, holders, fence, since, expires, ttl_us, ns, name, version, updated_at) "+
			"VALUES (?, ?, ?, "+at+", "+at+", ?, ?, ?, ?, "+now+")", append(end, id.ns, id.name, max(st.Fence, uint64(st.now)))...)
		if err != nil || r.affected == 0 {
			return false, err
		}
		return true, s.checkShape(ctx, token)
	}
	compare, with := "version = ?", any(st.row.version)
	if s.b.opts.ByUpdate {
		compare, with = "updated_at = "+at, st.row.updated
	}
	r, err := s.exec(ctx, "UPDATE "+table+" SET token = ?, holders = ?, fence = ?, since = "+at+", expires = "+at+", ttl_us = ?, "+
		"version = version + 1, updated_at = "+forward+byKey+" AND "+compare, append(end, id.ns, id.name, with)...)
	return r.affected > 0, err
}

// change reads a lock, lets edit change it, and writes it if nobody was quicker; else
// it begins again. What edit refuses is not written.
func (s *session) change(ctx context.Context, id lockID, self string, edit func(*state) error) error {
	for {
		st, err := s.read(ctx, id)
		if err == nil {
			err = s.judge(ctx, st, self)
		}
		if err == nil {
			err = edit(st)
		}
		if err != nil {
			return err
		}
		if written, err := s.write(ctx, id, st); err != nil || written {
			return err
		}
	}
}

// dress completes holders for people: a hold that ends with its connection ends a TTL
// after that, and what a foreign program calls its token is not ours.
func (st *state) dress(holders []backend.Holder) []backend.Holder {
	for i := range holders {
		h := &holders[i]
		if !h.Leased {
			h.Leased, h.Left = true, st.ttl(h.Token)
		}
		if h.Owner.Kind == backend.Foreign {
			h.Token = ""
		}
	}
	return holders
}

func (st *state) ttl(token string) time.Duration {
	for _, h := range st.Holders {
		if h.Token == token {
			return h.TTL
		}
	}
	return 0
}
