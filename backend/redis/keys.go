package redis

import (
	"fmt"
	"strings"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/lazy"
)

// lockKeys are the keys of one lock as the scripts get them. They share a hash tag, so
// that a cluster has them in one slot.
type lockKeys []string

// The places in lockKeys.
const (
	keyLock = iota
	keyQueue
	keyPlaces
	keyMeta
	keyHolds
	keyTomb
	keyIndex // not in a cluster
)

// The ends of the side keys.
const (
	endMeta  = ":m"
	endIndex = ":index"
	rawMark  = ":raw" // of side keys in the empty namespace, where the lock is the plain name
)

// keys names the keys of a lock, and the tombstone of a token.
func (b *Backend) keys(name, token string) (lockKeys, error) {
	lock, base, err := b.lockAndBase(name)
	if err != nil {
		return nil, err
	}
	k := lockKeys{lock, base + ":q", base + ":w", base + endMeta, base + ":h", base + ":d:" + token}
	if !b.opts.Cluster {
		k = append(k, b.indexKey())
	}
	return k, nil
}

// channel is what the waiter of that token listens to, as the scripts derive it.
func (k lockKeys) channel(token string) string {
	return strings.TrimSuffix(k[keyMeta], "m") + "c:" + token
}

// lockAndBase names the key that is the lock, and what all others begin with.
func (b *Backend) lockAndBase(name string) (lock, base string, err error) {
	if err := backend.CheckName(name); err != nil {
		return "", "", err
	}
	if ns := b.opts.Namespace; ns != "" {
		base = escape(ns) + ":{" + escape(name) + "}"
		return base, base, nil
	}
	if ownKey().MatchString(name) {
		return "", "", fmt.Errorf("%w lock name: %s is a key of dlock's own (NS:{NAME} is the lock NAME of --namespace NS)", backend.ErrInvalid, name)
	}
	tag := hashTag(name)
	base = "dlock:{" + tag + "}" + rawMark
	switch {
	case tag != name:
		base += ":" + name
	case b.opts.Cluster && strings.Contains(name, "}"):
		return "", "", fmt.Errorf("%w lock name: in a cluster and without a namespace, %s would need keys in two slots", backend.ErrInvalid, name)
	}
	return name, base, nil
}

// indexKey names the list of the namespace's locks.
func (b *Backend) indexKey() string {
	if b.opts.Namespace == "" {
		return "dlock:{}" + rawMark + endIndex
	}
	return escape(b.opts.Namespace) + ":{}" + endIndex
}

// nameOf undoes what the key of a lock's META says.
func (b *Backend) nameOf(metaKey string) (string, bool) {
	rest, ok := strings.CutSuffix(metaKey, endMeta)
	if !ok {
		return "", false
	}
	name := ""
	if ns := b.opts.Namespace; ns != "" {
		rest, _ = strings.CutPrefix(rest, escape(ns)+":{")
		name, ok = backend.Unescape(strings.TrimSuffix(rest, "}"))
	} else {
		tag, after, _ := strings.Cut(strings.TrimPrefix(rest, "dlock:{"), "}"+rawMark)
		if name = tag; after != "" {
			name = strings.TrimPrefix(after, ":")
		}
	}
	if !ok {
		return "", false
	}
	_, base, err := b.lockAndBase(name)
	return name, err == nil && base+endMeta == metaKey
}

// metaPattern matches the META keys of the namespace, and little else.
func (b *Backend) metaPattern() string {
	if b.opts.Namespace == "" {
		return `dlock:{*}` + rawMark + "*" + endMeta
	}
	return globSpecial().ReplaceAllString(escape(b.opts.Namespace), `\$0`) + ":{*}" + endMeta
}

var globSpecial = lazy.Regexp(`[*?\[\]\\]`)

// escape takes out of a name what would end the hash tag, or begin another.
func escape(s string) string {
	return backend.Escape(s, func(_ int, c byte) bool { return c != '{' && c != '}' })
}

// ownKey matches the names that are, or may be, keys of dlock's own: what begins as the
// side keys of the empty namespace do, and the locks and side keys of all others.
var ownKey = lazy.Regexp(`^(dlock:\{|[^{}]*:\{[^{}]*\}(:(q|w|m|h|index|d:.*|raw.*))?$)`)

// hashTag is the part of a key that decides its slot, by the cluster specification.
func hashTag(key string) string {
	if _, after, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}
