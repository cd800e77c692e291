//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock/dlock/backend"
	"github.com/dlock/dlock/internal/boottime"
)

type lease = backend.Lease

var errLost = backend.ErrLost

// lock is one of the well-known recipes for a lock on Redis, with a flaw.
type lock struct {
	flaw   string
	client *redis.Client
	name   string
	token  string
	ttl    time.Duration
	skew   time.Duration
	fence  int64
	lease  lease
}

// The right recipe.
const (
	renewScript   = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`
	releaseScript = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`
)

// window is the time between two steps that ought to be one: on a busy host, or over a
// slow network, it is as long as this.
const window = 150 * time.Millisecond

// acquire asks for the lock until it has it.
func (l *lock) acquire(ctx context.Context, signals <-chan os.Signal) error {
	for {
		l.lease = lease{Sent: boottime.Now(), TTL: l.ttl, Every: l.ttl / 3}
		try, cancel := context.WithTimeout(ctx, l.ttl)
		got, err := l.take(try)
		if got && err == nil {
			l.fence, err = l.client.Incr(try, l.name+":fence").Result()
		}
		cancel()
		if got && err == nil {
			l.believe()
			return nil
		}
		if got {
			l.release()
		}
		select {
		case s := <-signals:
			if s != syscall.SIGCONT && s != syscall.SIGWINCH {
				return fmt.Errorf("%v", s)
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// take tries to take the lock.
func (l *lock) take(ctx context.Context) (bool, error) {
	switch l.flaw {
	case "setnx expire": // a crash between the two leaves a lock for ever
		got, err := l.client.SetNX(ctx, l.name, l.token, 0).Result()
		if got && err == nil {
			time.Sleep(window)
			err = l.client.PExpire(ctx, l.name, l.ttl).Err()
		}
		return got, err
	case "getset": // the value says when it ends, by the clock of who wrote it
		return l.takeByClock(ctx)
	}
	return l.client.SetNX(ctx, l.name, l.token, l.ttl).Result()
}

func (l *lock) takeByClock(ctx context.Context) (bool, error) {
	now := time.Now().Add(l.skew)
	l.token = strconv.FormatInt(now.Add(l.ttl).UnixNano(), 10)
	got, err := l.client.SetNX(ctx, l.name, l.token, 0).Result()
	if got || err != nil {
		return got, err
	}
	old, err := l.client.Get(ctx, l.name).Int64()
	if err != nil || old > now.UnixNano() {
		return false, nil
	}
	before, err := l.client.Do(ctx, "GETSET", l.name, l.token).Int64()
	return before == old, err
}

// believe reckons the lease as the flaw has it.
func (l *lock) believe() {
	switch l.flaw {
	case "from the reply":
		l.lease.Sent = boottime.Now()
	case "kill at the deadline": // the margin of backend.Lease is taken back
		l.lease.TTL = l.ttl + l.lease.Deadline().Sub(l.lease.KillAt()) + 25*time.Millisecond
	}
}

// Renew extends the lease.
func (l *lock) Renew(ctx context.Context) (lease, error) {
	next := lease{Sent: boottime.Now(), TTL: l.ttl, Every: l.ttl / 3}
	ok, err := int64(1), error(nil)
	switch l.flaw {
	case "no renewal":
	case "getset":
		l.token = strconv.FormatInt(time.Now().Add(l.skew+l.ttl).UnixNano(), 10)
		err = l.client.Set(ctx, l.name, l.token, 0).Err()
	case "set":
		err = l.client.Set(ctx, l.name, l.token, l.ttl).Err()
	default:
		ok, err = l.client.Eval(ctx, renewScript, []string{l.name}, l.token, l.ttl.Milliseconds()).Int64()
	}
	switch {
	case err != nil:
		return lease{}, err
	case ok == 0:
		return lease{}, errLost
	}
	l.lease = next
	l.believe()
	return l.lease, nil
}

// release gives the lock back.
func (l *lock) release() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	switch l.flaw {
	case "blind del":
		_ = l.client.Del(ctx, l.name).Err()
	case "get then del":
		if l.client.Get(ctx, l.name).Val() == l.token {
			time.Sleep(window)
			_ = l.client.Del(ctx, l.name).Err()
		}
	default:
		_ = l.client.Eval(ctx, releaseScript, []string{l.name}, l.token).Err()
	}
}
