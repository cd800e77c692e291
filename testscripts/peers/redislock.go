package main

import (
	"context"
	"errors"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

type redislockLocker struct {
	client *redislock.Client
	key    string
	lock   *redislock.Lock
}

func newRedislock(client *redis.Client, key string) *redislockLocker {
	return &redislockLocker{client: redislock.New(client), key: key}
}

func (l *redislockLocker) try(ctx context.Context) error {
	return l.obtain(ctx, redislock.NoRetry())
}

func (l *redislockLocker) wait(ctx context.Context) error {
	return l.obtain(ctx, redislock.LinearBackoff(pause))
}

// obtain gives up after the ttl at the latest, as the library does by itself.
func (l *redislockLocker) obtain(ctx context.Context, retry redislock.RetryStrategy) (err error) {
	l.lock, err = l.client.Obtain(ctx, l.key, ttl, &redislock.Options{RetryStrategy: retry})
	if errors.Is(err, redislock.ErrNotObtained) || errors.Is(err, context.DeadlineExceeded) {
		return errBusy
	}
	return err
}

func (l *redislockLocker) release(ctx context.Context) error {
	err := l.lock.Release(ctx)
	if errors.Is(err, redislock.ErrLockNotHeld) {
		return errLost
	}
	return err
}
