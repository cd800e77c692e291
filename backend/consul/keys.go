package consul

import (
	"strings"

	"github.com/dlock/dlock/backend"
)

const (
	lockKey  = ".lock"  // api.Lock and api.Semaphore call it so
	lineMark = ".dlock" // ends the name of what is beside a prefix
)

// keys names the keys of one lock, and of one contender for it.
type keys struct {
	name  string
	gate  string // what stands below it is known to other programs
	line  string // the line of contenders, away from the gate: who wants a slot lists all that is there
	token string
	again string // ends the key of a place that is not the first: that of a dead session cannot be had at once
}

func (k keys) lock() string               { return k.gate + lockKey }
func (k keys) entry() string              { return k.line + k.token + k.again }
func (k keys) contender(id string) string { return k.gate + id }

// keys names the keys of a lock.
func (b *Backend) keys(name, token string) (keys, error) {
	if err := backend.CheckName(name); err != nil {
		return keys{}, err
	}
	prefix := b.prefix()
	return keys{name: name, gate: join(prefix, encode(name)) + "/", line: prefix + lineMark + "/" + encode(name) + "/", token: token}, nil
}

// prefix is what the locks of the namespace are below; it has no slash at its end.
func (b *Backend) prefix() string {
	if b.opts.Namespace == "" {
		return b.opts.Prefix
	}
	ns := encode(b.opts.Namespace)
	if rest, ok := strings.CutSuffix(ns, lineMark); ok { // else it would be another one's line
		ns = rest + "%2E" + lineMark[1:]
	}
	return join(b.opts.Prefix, ns)
}

func join(prefix, s string) string {
	if prefix == "" {
		return s
	}
	return prefix + "/" + s
}

// encode escapes what a path cannot have: "/", and the names "." and "..", which are
// cleaned away on the way to the server.
func encode(name string) string {
	dots := name == "." || name == ".."
	return backend.Escape(name, func(i int, c byte) bool { return c != '/' && !(dots && i == 0) })
}

// nameOf undoes what keys does to a name.
func nameOf(s string) (string, bool) {
	name, ok := backend.Unescape(s)
	return name, ok && backend.CheckName(name) == nil && encode(name) == s
}
