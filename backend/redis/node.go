package redis

import (
	"context"
	_ "embed"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
)

var (
	//go:embed lua/node/node.lua
	nodeLua string
	//go:embed lua/node/take.lua
	nodeTakeLua string
	//go:embed lua/node/yield.lua
	nodeYieldLua string
	//go:embed lua/node/number.lua
	nodeNumberLua string
	//go:embed lua/node/restore.lua
	nodeRestoreLua string
)

// Node is one of several independent servers that are a lock service only together. It
// has the keys that a server alone would have, and scripts that offer the lock to nobody
// (see lua/node/node.lua).
type Node struct{ b *Backend }

// NewNode returns the Node that opts describe, which is one server; it connects to nothing.
func NewNode(opts Options) *Node { return &Node{New(opts)} }

// Address names the server without secrets.
func (n *Node) Address() string { return n.b.opts.address() }

// Connected tells whether the server has ever answered.
func (n *Node) Connected() bool { return n.b.connected.Load() }

// Close closes the connections.
func (n *Node) Close() error { return n.b.Close() }

// Check tells whether name can be the name of a lock.
func (n *Node) Check(name string) error {
	_, err := n.b.keys(name, "")
	return err
}

// Settings checks the server as its administrator would.
func (n *Node) Settings(ctx context.Context) []backend.Check {
	return n.b.checkNode(ctx, n.b.client, n.Address()+": ")
}

// Claim is what a contender asks of each server.
type Claim struct {
	Name, Token string
	Owner       string // as JSON
	Kind        backend.OwnerKind
	Mode        backend.Mode
	TTL         time.Duration
	Place       time.Duration // in line; 0: none
	Ticket      int64         // of the place
	Slot        int           // which one of the slots; 0: any
}

// Answer is what a server says to a claim.
type Answer struct {
	Held   bool
	Fence  uint64        // the server's own, if Held
	TTL    time.Duration // if Held
	Slot   int           // that was given, or could be; 0: none
	Ticket int64         // the last that was given out

	// If not Held:
	Holders []NodeHolder
	Ahead   int           // in line
	Left    time.Duration // until the lock may be free; below zero: no end is known
	Why     string        // it is not: Foreign, Tail or another word
}

// NodeHolder is a hold as one server shows it.
type NodeHolder struct {
	backend.Holder
	Slot int // which one of the slots; 0 in other modes
}

func nodeHolders(r reply) (list []NodeHolder) {
	for i := range r {
		list = append(list, NodeHolder{holder(r.list(i)), int(r.list(i).number(9))})
	}
	return list
}

// NodeWaiter is a waiter as one server shows it.
type NodeWaiter struct {
	backend.Waiter
	Token  string
	Ticket int64
}

// Words of Answer.Why and Notice.Why.
const (
	Foreign = behindForeign
	Tail    = behindTail
)

// Take asks for the lock, or a place in line.
func (n *Node) Take(ctx context.Context, c Claim) (Answer, error) {
	r, err := n.run(ctx, nodeTakeScript, c.Name, c.Token, c.Token, c.Name, c.Owner, string(c.Kind), string(c.Mode.Kind),
		c.Mode.N, c.TTL.Milliseconds(), c.Place.Milliseconds(), c.Ticket, c.Slot)
	switch {
	case r.status() == "slots":
		return Answer{}, otherSlots(c.Mode, r)
	case err != nil:
		return Answer{}, err
	case r.status() == "held":
		return Answer{Held: true, Fence: r.fence(2), TTL: r.ms(3), Slot: int(r.number(4)), Ticket: r.number(5)}, nil
	}
	return Answer{
		Ahead: int(r.number(2)), Left: r.ms(3), Why: r.text(4), Ticket: r.number(5),
		Holders: nodeHolders(r.list(6)), Slot: int(r.number(7)),
	}, nil
}

// Yield gives back what was taken in line, and keeps the place.
func (n *Node) Yield(ctx context.Context, c Claim) error {
	_, err := n.run(ctx, nodeYieldScript, c.Name, c.Token, c.Token, c.Place.Milliseconds(), c.Ticket)
	return err
}

// Number writes back the fence of a hold.
func (n *Node) Number(ctx context.Context, c Claim, fence uint64) error {
	_, err := n.run(ctx, nodeNumberScript, c.Name, c.Token, c.Token, fence)
	return err
}

// Restore gives a server that has lost it a hold that a majority knows.
func (n *Node) Restore(ctx context.Context, c Claim, fence uint64) error {
	_, err := n.run(ctx, nodeRestoreScript, c.Name, c.Token, c.Token, c.Name, c.Owner, string(c.Kind), string(c.Mode.Kind),
		c.Mode.N, c.TTL.Milliseconds(), fence, c.Slot)
	return err
}

// Renew extends a hold and returns the time that it has left.
func (n *Node) Renew(ctx context.Context, name, token string, ttl time.Duration) (time.Duration, error) {
	r, err := n.run(ctx, renewScript, name, token, token, ttl.Milliseconds())
	if err == nil {
		n.b.policy.Do(n.b.checkPolicy)
	}
	return r.ms(3), err
}

// Release ends a hold, or leaves a tail of it.
func (n *Node) Release(ctx context.Context, name, token string, tail time.Duration) error {
	_, err := n.run(ctx, nodeReleaseScript, name, token, token, max(0, tail.Milliseconds()))
	return err
}

// Leave ends whatever token is; final: a claim of it that arrives later finds it withdrawn.
func (n *Node) Leave(ctx context.Context, name, token string, final bool) error {
	tomb := time.Duration(0)
	if final {
		tomb = tombstone
	}
	_, err := n.run(ctx, nodeLeaveScript, name, token, token, tomb.Milliseconds())
	return err
}

// Held is what a server knows of a hold.
type Held struct {
	Kind  backend.OwnerKind
	Fence uint64
	TTL   time.Duration
}

// Attach finds a hold by its token.
func (n *Node) Attach(ctx context.Context, name, token string) (Held, error) {
	r, err := n.run(ctx, attachScript, name, token, token)
	return Held{Kind: backend.OwnerKind(r.text(4)), Fence: r.fence(2), TTL: r.ms(3)}, err
}

// Revoke does to one server's part of a hold what Backend.Revoke does.
func (n *Node) Revoke(ctx context.Context, name, prefix string, now bool) (backend.Holder, error) {
	return n.b.revoke(ctx, nodeRevokeScript, name, prefix, now)
}

// NodeStatus is one server's view of a lock.
type NodeStatus struct {
	Holders []NodeHolder
	Waiters []NodeWaiter
	Fence   uint64 // the server's own
	Err     error  // the server's keys of the lock cannot be read
}

// Inspect shows locks as this server knows them, in the order of names, of which Batch take
// one round trip.
func (n *Node) Inspect(ctx context.Context, names []string) ([]NodeStatus, error) {
	answers, err := n.b.inspectEach(ctx, names)
	if err != nil {
		return nil, err
	}
	list := make([]NodeStatus, len(answers))
	for i, a := range answers {
		list[i] = nodeStatus(a)
	}
	return list, nil
}

func nodeStatus(a answer) NodeStatus {
	if a.err == nil {
		a.err = a.reply.refusal()
	}
	if a.err != nil {
		return NodeStatus{Err: a.err}
	}
	s := NodeStatus{Holders: nodeHolders(a.reply.list(4)), Fence: a.reply.fence(3)}
	for i := range a.reply.list(5) {
		w := a.reply.list(5).list(i)
		s.Waiters = append(s.Waiters, NodeWaiter{waiter(w), w.text(5), w.number(6)})
	}
	return s
}

// Names lists the locks of the namespace that this server knows, sorted.
func (n *Node) Names(ctx context.Context) ([]string, error) { return n.b.names(ctx) }

// Notice is what a server tells a waiter. The zero Notice is a call: the subscription is
// new, or it is the waiter's turn here.
type Notice struct {
	Head bool          // it is the head of the line, and should look after Left
	Left time.Duration // below zero: no end is known
	Why  string
	Err  error // the subscription failed; it is being renewed
}

// Listen sends what the server tells the waiter of that token to heard, until ctx ends.
func (n *Node) Listen(ctx context.Context, name, token string, heard func(Notice)) error {
	k, err := n.b.keys(name, token)
	if err != nil {
		return err
	}
	l := n.b.listen(ctx, k, token, false)
	go func() {
		defer l.close()
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-l.events:
				heard(Notice{Head: e.head, Left: e.left, Why: e.why, Err: e.err})
			}
		}
	}()
	return nil
}

// run runs a script; what it refuses is an error.
func (n *Node) run(ctx context.Context, s script, name, token string, args ...any) (reply, error) {
	k, err := n.b.keys(name, token)
	if err != nil {
		return nil, err
	}
	r, err := n.b.run(ctx, s, k, args...)
	if err == nil {
		err = r.refusal()
	}
	return r, err
}

// Answered tells whether an error is the server's own word, so that nothing is on its way.
func Answered(err error) bool {
	return answered(err) || !passing(err)
}

// GivenUp is err, the last of several tries, with the cause for which there are no more.
func GivenUp(err, cause error) error { return givenUp(err, cause) }

// Passing tells whether an error may be gone at the next try.
func Passing(err error) bool { return passing(err) }

// Requests counts the commands that the server has executed.
func (n *Node) Requests(ctx context.Context) (uint64, error) { return n.b.Requests(ctx) }

// Forget removes from this server a lock that it knows nobody to hold or wait for.
func (n *Node) Forget(ctx context.Context, name string) error { return n.b.Forget(ctx, name) }

// AtLeast is ctx, but does not end before d has passed: a very short wait still asks once.
func AtLeast(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return atLeast(ctx, d)
}

// Do sends plain commands in one go and returns their replies, nil for a missing value.
// The first error of one of them is returned.
func (n *Node) Do(ctx context.Context, commands ...[]any) ([]any, error) {
	return n.b.call(ctx, func(ctx context.Context) (any, error) {
		p := n.b.client.Pipeline()
		for _, c := range commands {
			p.Do(ctx, c...)
		}
		cmds, _ := p.Exec(ctx) // each command has its own error
		replies := make([]any, 0, max(len(cmds), 2))
		for _, c := range cmds {
			v, err := c.(*redis.Cmd).Result()
			if err != nil && !errors.Is(err, redis.Nil) {
				return nil, err
			}
			replies = append(replies, v)
		}
		return replies[:max(len(cmds), 2)], nil // parse wants two
	})
}

// Keys names the key that is the lock, and those beside it that hold what a script would
// find: the last fence (field f of a hash), and the index of the namespace.
func (n *Node) Keys(name string) (lock, meta, index string, err error) {
	k, err := n.b.keys(name, "")
	if err != nil {
		return "", "", "", err
	}
	return k[keyLock], k[keyMeta], k[keyIndex], nil
}

// Memory is how long side keys outlive the last use of a lock.
const Memory = 30 * 24 * time.Hour
