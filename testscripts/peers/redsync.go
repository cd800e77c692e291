package main

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type redsyncLocker struct{ *redsync.Mutex }

func newRedsync(client *redis.Client, key string) redsyncLocker {
	r := redsync.New(goredis.NewPool(client))
	return redsyncLocker{r.NewMutex(key, redsync.WithExpiry(ttl), redsync.WithRetryDelay(pause))}
}

func (l redsyncLocker) try(ctx context.Context) error { return redsyncBusy(l.TryLockContext(ctx)) }

func (l redsyncLocker) wait(ctx context.Context) error { return redsyncBusy(l.LockContext(ctx)) }

func (l redsyncLocker) release(ctx context.Context) error {
	ok, err := l.UnlockContext(ctx)
	if errors.As(err, new(*redsync.ErrTaken)) || errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return errLost
	}
	if err == nil && !ok {
		return errLost
	}
	return err
}

func redsyncBusy(err error) error {
	if errors.As(err, new(*redsync.ErrTaken)) || errors.Is(err, redsync.ErrFailed) {
		return errBusy
	}
	return err
}
