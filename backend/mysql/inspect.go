package mysql

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/backend/record"
)

// note is what a waiter says of itself, in a comment of the statement that waits: the
// list of the server's connections is the line, and costs nothing.
type note struct {
	NS    string        `json:"ns"`
	Name  string        `json:"name"`
	Mode  backend.Mode  `json:"mode"`
	Since record.Time   `json:"since"` // by the server's clock
	Owner backend.Owner `json:"owner"`
}

const noteMark = "dlock-wait "

// note makes the comment.
func (c *contender) note(since record.Time) string {
	text, err := json.Marshal(note{c.id.ns, c.id.name, c.req.Mode, since, c.owner()})
	if err != nil {
		text = []byte("{}")
	}
	return "/* " + noteMark + c.id.door + " " + plain(string(text)) + " */"
}

// plain writes JSON so that it can stand in a comment: no end of a comment, no question
// mark, which would be taken for a place of a value, and ASCII alone.
func plain(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, hi, lo)
		case r >= 0x7f, r == '?', r == '/', r == '*', r == '\'', r == '`', r == '#', r == '-' || r == ';':
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// waiters lists those in line before a door, or before all doors, oldest first.
func (s *session) waiters(ctx context.Context, door string) ([]waiter, error) {
	rows, err := s.query(ctx, "SELECT INFO, STATE FROM information_schema.PROCESSLIST WHERE COMMAND IN ('Query', 'Execute') "+
		"AND DB = DATABASE() AND ID <> CONNECTION_ID() AND INFO LIKE ?", "SELECT /* "+noteMark+door+"%")
	if err != nil {
		return nil, err
	}
	var list []waiter
	for _, v := range rows {
		if n, ok := readNote(v.text(0), door); ok {
			list = append(list, waiter{n, v.text(1)})
		}
	}
	slices.SortStableFunc(list, func(a, b waiter) int { return cmp.Compare(a.Since, b.Since) })
	return list, nil
}

// readNote reads the note in a statement that waits before a door, or any door.
func readNote(statement, door string) (n note, ok bool) {
	_, text, _ := strings.Cut(statement, "/* "+noteMark+door)
	if door == "" {
		_, text, _ = strings.Cut(text, " ")
	}
	text, _, _ = strings.Cut(text, " */")
	if json.Unmarshal([]byte(strings.TrimSpace(text)), &n) != nil {
		return note{}, false
	}
	return n, true
}

// waiter is a note that was found.
type waiter struct {
	note
	state string // what the server says that it does
}

// Inspect reports on locks. Without names it lists those that are held, and those that
// somebody waits for.
func (b *Backend) Inspect(ctx context.Context, names ...string) ([]backend.Status, error) {
	for _, name := range names {
		if err := backend.CheckName(name); err != nil {
			return nil, err
		}
	}
	var list []backend.Status
	err := b.with(ctx, func(s *session) (err error) {
		list, err = s.inspect(ctx, names)
		return err
	})
	return list, err
}

func (s *session) inspect(ctx context.Context, names []string) ([]backend.Status, error) {
	waiting, err := s.waiters(ctx, "")
	if err != nil {
		return nil, err
	}
	waiting = slices.DeleteFunc(waiting, func(w waiter) bool { return w.NS != s.b.opts.Namespace })
	listed := len(names) == 0
	if listed {
		if names, err = s.names(ctx); err != nil {
			return nil, err
		}
		for _, w := range waiting {
			names = append(names, w.Name)
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	var list []backend.Status
	for _, name := range names {
		id, err := s.b.lock(name)
		if err != nil {
			continue // no lock's, whoever wrote it
		}
		st, err := s.status(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, w := range waiting {
			if w.Name == id.name {
				st.Waiters = append(st.Waiters, backend.Waiter{Owner: w.Owner, Mode: w.Mode, Waiting: st.now.Sub(w.Since)})
			}
		}
		if !listed || len(st.Holders)+len(st.Waiters) > 0 {
			list = append(list, st.Status)
		}
	}
	return list, nil
}

// names lists the locks of the namespace that are taken.
func (s *session) names(ctx context.Context) ([]string, error) {
	rows, err := s.query(ctx, "SELECT name FROM "+table+" WHERE ns = ? AND token <> ''", s.b.opts.Namespace)
	if number(err) == noSuchTable {
		return nil, nil
	}
	var names []string
	for _, v := range rows {
		names = append(names, v.text(0))
	}
	return names, err
}

// found is a status and when it was.
type found struct {
	backend.Status
	now record.Time
}

func (s *session) status(ctx context.Context, name string) (found, error) {
	id, err := s.b.lock(name)
	if err != nil {
		return found{}, err
	}
	st, err := s.read(ctx, id)
	if err == nil {
		err = s.judge(ctx, st, "")
	}
	if err != nil {
		return found{}, err
	}
	if len(st.settle) > 0 {
		_, _ = s.write(ctx, id, st) // its end is known from now on; if not, the next one tells
	}
	f := found{st.Status(name, st.now), st.now}
	f.Holders = st.dress(f.Holders)
	if st.bad {
		f.Problems = append(f.Problems, "the record of the holders cannot be read")
	}
	for i := range f.Holders {
		if h := st.Holders[i]; h.Expires == 0 {
			if f.Holders[i].Revoked, err = s.isMarked(ctx, h.Token); err != nil {
				return found{}, err
			}
		}
	}
	return f, nil
}
