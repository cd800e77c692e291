package zookeeper

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/dlock/dlock/backend"
)

// base is the node below which the locks of the namespace are.
func (b *Backend) base() string {
	if b.opts.Namespace == "" {
		return b.opts.Chroot
	}
	return b.opts.Chroot + "/" + nodeName(b.opts.Chroot, b.opts.Namespace)
}

// dir is the node of a lock, below which its contenders stand in line.
func (b *Backend) dir(name string) (string, error) {
	if err := backend.CheckName(name); err != nil {
		return "", err
	}
	base := b.base()
	return base + "/" + nodeName(base, name), nil
}

// lockName undoes what dir does to a name.
func (b *Backend) lockName(node string) (string, bool) {
	name, ok := backend.Unescape(node)
	return name, ok && backend.CheckName(name) == nil && nodeName(b.base(), name) == node
}

// nodeName is a name as a node below parent: one that ZooKeeper takes, and that looks
// neither like its own node nor like a contender's.
func nodeName(parent, name string) string {
	switch {
	case parent == "" && name == "zookeeper":
		return encode(name, 0)
	case isPlace(name):
		return encode(name, len(name)-1)
	}
	return encode(name, -1)
}

// encode escapes what cannot be in the name of a node: "/", the names "." and "..", and
// the characters that ZooKeeper refuses, which are those above the plane 0, the private
// ones and the last of the plane; and the byte at also, if there is one.
func encode(name string, also int) string {
	refused := make([]bool, len(name))
	for i := 0; i < len(name); {
		r, size := utf8.DecodeRuneInString(name[i:]) // one byte of what is no UTF-8
		for range size {
			refused[i] = r == '/' || r > 0xFFFF || r >= 0xE000 && r <= 0xF8FF || r >= 0xFFF0
			i++
		}
	}
	if name == "." || name == ".." {
		refused[0] = true
	}
	return backend.Escape(name, func(i int, _ byte) bool { return !refused[i] && i != also })
}

// makeParents makes the node of a lock and what is above it, as far as it is missing.
// The lock's and the namespace's are containers, which the server removes when they
// are empty; so they may be gone again when this returns.
func (b *Backend) makeParents(ctx context.Context, s *session, path string) error {
	err := b.makeNode(ctx, s, path)
	if !is(err, zk.ErrNoNode) {
		return err
	}
	if up := path[:strings.LastIndexByte(path, '/')]; up != "" {
		if err := b.makeParents(ctx, s, up); err != nil {
			return err
		}
	}
	if err = b.makeNode(ctx, s, path); is(err, zk.ErrNoNode) {
		return nil // removed again: the caller finds out
	}
	return err
}

// makeNode makes one node that may be there already.
func (b *Backend) makeNode(ctx context.Context, s *session, path string) error {
	create := func(container bool) error {
		return do(ctx, s, func(c *zk.Conn) (err error) {
			if container {
				_, err = c.CreateContainer(path, nil, zk.FlagContainer, b.opts.acl())
			} else {
				_, err = c.Create(path, nil, zk.FlagPersistent, b.opts.acl())
			}
			return err
		})
	}
	container := len(path) > len(b.opts.Chroot)
	err := create(container)
	if container && unimplemented(err) { // before 3.5
		err = create(false)
	}
	if is(err, zk.ErrNodeExists) {
		return nil
	}
	return err
}
