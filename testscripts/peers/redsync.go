package main

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

type redsyncLocker struct{ *redsync.Mutex }

func newRedsync(clients []*redis.Client, key string) redsyncLocker {
	var pools []pool.Pool
	for _, client := range clients {
		pools = append(pools, goredis.NewPool(client))
	}
	r := redsync.New(pools...)
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
