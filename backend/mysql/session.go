package mysql

import (
	"context"
	"database/sql/driver"
	"fmt"
	"io"
	"strconv"
)

// session is one connection, used by one goroutine at a time. It never connects again
// by itself: what the server ties to a connection ends with it.
type session struct {
	b       *Backend
	conn    driver.Conn
	wire    *wire
	flavour flavour
	id      uint64 // the server's number of the connection, once it was asked for
	broken  bool
}

// result is what a statement did.
type result struct {
	affected int64
	id       uint64 // what LAST_INSERT_ID was told
}

// exec runs a statement that returns no rows.
func (s *session) exec(ctx context.Context, statement string, args ...any) (result, error) {
	r, err := s.conn.(driver.ExecerContext).ExecContext(ctx, statement, named(args))
	if err != nil {
		return result{}, s.failed(err)
	}
	affected, _ := r.RowsAffected() // the library knows them
	id, _ := r.LastInsertId()
	return result{affected, uint64(id)}, nil
}

// query runs a statement and returns all of its rows.
func (s *session) query(ctx context.Context, statement string, args ...any) ([]values, error) {
	rows, err := s.conn.(driver.QueryerContext).QueryContext(ctx, statement, named(args))
	if err != nil {
		return nil, s.failed(err)
	}
	defer rows.Close()
	var all []values
	for {
		row := make(values, len(rows.Columns()))
		switch err := rows.Next(row); err {
		case nil:
			for i, v := range row {
				if text, ok := v.([]byte); ok {
					row[i] = string(text) // the library's buffer is not ours
				}
			}
			all = append(all, row)
		case io.EOF:
			return all, nil
		default:
			return nil, s.failed(err)
		}
	}
}

// one runs a statement that returns one row.
func (s *session) one(ctx context.Context, statement string, args ...any) (values, error) {
	rows, err := s.query(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	if len(rows) != 1 {
		return nil, s.failed(fmt.Errorf("%d rows where one was asked for", len(rows)))
	}
	return rows[0], nil
}

// failed translates an error, and notes whether the connection is of use after it.
func (s *session) failed(err error) error {
	err = s.b.translate(err)
	s.broken = s.broken || !answered(err)
	return err
}

func named(args []any) []driver.NamedValue {
	list := make([]driver.NamedValue, len(args))
	for i, a := range args {
		list[i] = driver.NamedValue{Ordinal: i + 1, Value: a}
	}
	return list
}

// close ends the session; nil is none.
func (s *session) close() {
	if s != nil {
		s.broken = true
		_ = s.conn.Close() // the server notices in any case
	}
}

// values are the columns of one row.
type values []driver.Value

// null tells whether a column is NULL.
func (v values) null(i int) bool { return v[i] == nil }

// text is a column as text; empty for NULL.
func (v values) text(i int) string {
	switch x := v[i].(type) {
	case string:
		return x
	case int64:
		return strconv.FormatInt(x, 10)
	case uint64:
		return strconv.FormatUint(x, 10)
	}
	return ""
}

// number is a column as a number; 0 for NULL.
func (v values) number(i int) int64 {
	n, _ := strconv.ParseInt(v.text(i), 10, 64)
	return n
}

// natural is a column as a number that may be large; 0 for NULL.
func (v values) natural(i int) uint64 {
	n, _ := strconv.ParseUint(v.text(i), 10, 64)
	return n
}
