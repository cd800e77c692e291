package redis

import (
	"cmp"
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
)

var (
	//go:embed lua/lock.lua
	lockLua string
	//go:embed lua/take.lua
	takeLua string
	//go:embed lua/renew.lua
	renewLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/leave.lua
	leaveLua string
	//go:embed lua/attach.lua
	attachLua string
	//go:embed lua/revoke.lua
	revokeLua string
	//go:embed lua/inspect.lua
	inspectLua string
	//go:embed lua/forget.lua
	forgetLua string
)

// script is one atomic step.
type script struct {
	text func() string
	hash func() string
}

func newScript(parts ...*string) script {
	text := func() string {
		all := lockLua
		for _, part := range parts {
			all += *part
		}
		return all
	}
	return script{text: text, hash: sync.OnceValue(func() string {
		sum := sha1.Sum([]byte(text()))
		return hex.EncodeToString(sum[:])
	})}
}

var (
	takeScript    = newScript(&takeLua)
	renewScript   = newScript(&renewLua)
	releaseScript = newScript(&releaseLua)
	leaveScript   = newScript(&leaveLua)
	attachScript  = newScript(&attachLua)
	revokeScript  = newScript(&revokeLua)
	inspectScript = newScript(&inspectLua)
	forgetScript  = newScript(&forgetLua)

	nodeTakeScript    = newScript(&nodeLua, &nodeTakeLua)
	nodeYieldScript   = newScript(&nodeLua, &nodeYieldLua)
	nodeNumberScript  = newScript(&nodeLua, &nodeNumberLua)
	nodeRestoreScript = newScript(&nodeLua, &nodeRestoreLua)
	nodeReleaseScript = newScript(&nodeLua, &releaseLua)
	nodeLeaveScript   = newScript(&nodeLua, &leaveLua)
	nodeRevokeScript  = newScript(&nodeLua, &revokeLua)
)

// run runs a script once. An error means that the outcome is unknown, unless the
// server sent it. It returns when ctx ends, also where the client library would not.
func (b *Backend) run(ctx context.Context, s script, k lockKeys, args ...any) (reply, error) {
	return b.call(ctx, func(ctx context.Context) (any, error) {
		v, err := b.client.EvalSha(ctx, s.hash(), k, args...).Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			v, err = b.client.Eval(ctx, s.text(), k, args...).Result()
		}
		return v, err
	})
}

// answer is what the server said to one of several requests.
type answer struct {
	reply reply
	err   error
}

// Batch is how many locks are asked for in one round trip.
const Batch = 200

// runEach runs a script that changes nothing for each of the locks, in few round trips. It
// fails if the server does not work; what else is wrong is told of each lock.
func (b *Backend) runEach(ctx context.Context, s script, locks []lockKeys) ([]answer, error) {
	answers := make([]answer, 0, len(locks))
	for some := range slices.Chunk(locks, Batch) {
		var cmds []*redis.Cmd
		_, err := b.call(ctx, func(ctx context.Context) (_ any, err error) {
			cmds, err = b.evalEach(ctx, some, func(p redis.Pipeliner, k lockKeys) *redis.Cmd { return p.EvalSha(ctx, s.hash(), k) })
			if slices.ContainsFunc(cmds, func(c *redis.Cmd) bool { return redis.HasErrorPrefix(c.Err(), "NOSCRIPT") }) {
				cmds, err = b.evalEach(ctx, some, func(p redis.Pipeliner, k lockKeys) *redis.Cmd { return p.Eval(ctx, s.text(), k) })
			}
			return []any{"done", ""}, err
		})
		if err != nil {
			return nil, err
		}
		for _, c := range cmds {
			var a answer
			if err := c.Err(); err == nil {
				a.reply, a.err = parse(c.Val())
			} else if a.err = b.translate(err); passing(a.err) {
				return nil, a.err
			}
			answers = append(answers, a)
		}
	}
	return answers, nil
}

func (b *Backend) evalEach(ctx context.Context, locks []lockKeys, eval func(redis.Pipeliner, lockKeys) *redis.Cmd) (cmds []*redis.Cmd, err error) {
	p := b.client.Pipeline()
	for _, k := range locks {
		cmds = append(cmds, eval(p, k))
	}
	return cmds, exec(ctx, p)
}

// exec sends commands. Each has its own error, and there is none of all but where they were
// not sent: the client library gives a refused connection to no command.
func exec(ctx context.Context, p redis.Pipeliner) error {
	cmds, err := p.Exec(ctx)
	if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Err() != nil }) {
		return nil
	}
	return err
}

// runReplicated runs a script and waits until as many replicas as Options.Replicas
// asks for have what it wrote; with fewer it returns errReplicas beside the reply.
func (b *Backend) runReplicated(ctx context.Context, s script, k lockKeys, args ...any) (reply, error) {
	if b.opts.Replicas == 0 {
		return b.run(ctx, s, k, args...)
	}
	acknowledged := int64(-1)
	r, err := b.call(ctx, func(ctx context.Context) (any, error) {
		node, err := b.nodeOf(ctx, k)
		if err != nil {
			return nil, err
		}
		eval, wait, err := b.pipe(ctx, node, func(p redis.Pipeliner) *redis.Cmd { return p.EvalSha(ctx, s.hash(), k, args...) })
		if redis.HasErrorPrefix(eval.Err(), "NOSCRIPT") {
			eval, wait, err = b.pipe(ctx, node, func(p redis.Pipeliner) *redis.Cmd { return p.Eval(ctx, s.text(), k, args...) })
		}
		acknowledged, _ = wait.Int64() // 0 if it failed
		return eval.Val(), cmp.Or(err, eval.Err())
	})
	if err == nil && acknowledged < int64(b.opts.Replicas) {
		err = &replicasError{address: b.opts.address(), got: acknowledged, want: b.opts.Replicas}
	}
	return r, err
}

// pipe sends a script and WAIT in one go, on the one connection that WAIT is about.
func (b *Backend) pipe(ctx context.Context, node redis.Cmdable, eval func(redis.Pipeliner) *redis.Cmd) (cmd, wait *redis.Cmd, err error) {
	p := node.Pipeline()
	cmd, wait = eval(p), p.Do(ctx, "WAIT", b.opts.Replicas, replicaLimit.Milliseconds())
	return cmd, wait, exec(ctx, p)
}

// replicaLimit is how long replicas may take to acknowledge.
const replicaLimit = 500 * time.Millisecond

// nodeOf is the server that has the keys.
func (b *Backend) nodeOf(ctx context.Context, k lockKeys) (redis.Cmdable, error) {
	if c, ok := b.client.(*redis.ClusterClient); ok {
		return c.MasterForKey(ctx, k[keyLock])
	}
	return b.client, nil
}

// call runs a request to the server. It does not wait for one whose context has ended:
// the client library heeds deadlines, but not cancellation.
func (b *Backend) call(ctx context.Context, request func(context.Context) (any, error)) (reply, error) {
	type result struct {
		value any
		err   error
	}
	done := make(chan result, 1)
	go func() {
		v, err := request(ctx)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return nil, b.translate(r.err)
		}
		return parse(r.value)
	case <-ctx.Done():
		return nil, b.noAnswer(context.Cause(ctx))
	}
}

// replicasError says that a write reached too few replicas.
type replicasError struct {
	address string
	got     int64
	want    int
}

// Error names both numbers.
func (e *replicasError) Error() string {
	return fmt.Sprintf("%s: %d of the %d replicas that ?replicas asks for acknowledged in time", e.address, e.got, e.want)
}

// Unwrap makes it a service that does not work.
func (e *replicasError) Unwrap() error { return backend.ErrUnavailable }

func tooFewReplicas(err error) bool { return errors.As(err, new(*replicasError)) }
