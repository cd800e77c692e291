package redis

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// listener is a subscription to a waiter's channel that is renewed when it breaks.
type listener struct {
	events chan notice
	stale  chan struct{} // the subscription is to be made anew
	cancel context.CancelFunc
}

// listen subscribes to the channel of a token. Each new subscription is an event too:
// what was sent before it was not heard.
func (b *Backend) listen(ctx context.Context, k lockKeys, token string, sharded bool) *listener {
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{events: make(chan notice), stale: make(chan struct{}, 1), cancel: cancel}
	for _, addr := range b.sentinels() {
		go b.watchSentinel(ctx, addr, l)
	}
	subscribe := b.client.Subscribe
	if sharded {
		subscribe = b.client.SSubscribe
	}
	go func() {
		for ctx.Err() == nil {
			b.receive(ctx, subscribe(ctx, k.channel(token)), l)
		}
	}()
	return l
}

func (l *listener) close() { l.cancel() }

// renew makes the subscription anew, as is due when the server does not know of it.
func (l *listener) renew() {
	select {
	case l.stale <- struct{}{}:
	default:
	}
}

// send delivers an event; false if nobody listens any more.
func (l *listener) send(ctx context.Context, n notice) bool {
	select {
	case l.events <- n:
		return true
	case <-ctx.Done():
		return false
	}
}

// receive passes on what a subscription brings, until it cannot go on or is to be made
// anew. The library subscribes again by itself after
// an error, but not after its server gave the channel's slot away.
func (b *Backend) receive(ctx context.Context, sub *redis.PubSub, l *listener) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-l.stale:
		}
		sub.Close() // ends Receive
		cancel()
	}()
	for pause := firstPause; ; {
		msg, err := sub.Receive(ctx)
		if ctx.Err() != nil {
			return
		}
		switch m := msg.(type) {
		case *redis.Message:
			if m.Payload != ownProbe && !l.send(ctx, parseNotice(m.Payload)) {
				return
			}
		case *redis.Subscription:
			if pause = firstPause; m.Count == 0 || !l.send(ctx, notice{fresh: true}) {
				return
			}
		}
		if err == nil {
			continue
		}
		if !l.send(ctx, notice{err: b.translate(err)}) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// ownProbe is what take.lua sends to see whether the waiter hears.
const ownProbe = "."

// sentinels lists the sentinels worth listening to.
func (b *Backend) sentinels() []string {
	if b.opts.Master == "" {
		return nil
	}
	return b.opts.Addrs
}

// watchSentinel tells when the master has moved: a subscription to one that hangs
// breaks only much later.
func (b *Backend) watchSentinel(ctx context.Context, addr string, l *listener) {
	c := b.opts.sentinel(addr)
	defer c.Close()
	sub := c.Subscribe(ctx, "+switch-master")
	defer context.AfterFunc(ctx, func() { sub.Close() })()
	defer sub.Close()
	for ctx.Err() == nil {
		msg, err := sub.Receive(ctx)
		if _, ok := msg.(*redis.Message); ok { // of any master: a needless look is cheap
			l.renew()
		}
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(lastPause):
			}
		}
	}
}
