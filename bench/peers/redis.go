package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncTTL is the expiry that redsync chooses.
const redsyncTTL = 8 * time.Second

// redislockPoll is the pause between two attempts of redislock, which has no default. It is short,
// for quick hand-offs.
const redislockPoll = 5 * time.Millisecond

var redisPeers = []peer{
	{name: "redsync", title: "redsync, Redis, retries after 50 to 250 ms (default)", durable: unsynced, server: "redis",
		ttl: redsyncTTL, open: openRedsync},
	{name: "redsync-always", title: "redsync, Redis with `appendfsync always`", durable: synced,
		server: "redis-always", ttl: redsyncTTL, open: openRedsync},
	{name: "redislock", title: "redislock, Redis, retries after 5 ms", durable: unsynced, server: "redis",
		open: openRedislock},
	{name: "redislock-always", title: "redislock, Redis with `appendfsync always`", durable: synced,
		server: "redis-always", open: openRedislock},
}

func openRedis(at string) *redis.Client { return redis.NewClient(&redis.Options{Addr: at}) }

type redsyncLocker struct {
	client *redis.Client
	sync   *redsync.Redsync
	ttl    time.Duration
}

func openRedsync(_ context.Context, at string, ttl time.Duration) (locker, error) {
	c := openRedis(at)
	return redsyncLocker{c, redsync.New(goredis.NewPool(c)), ttl}, nil
}

func (r redsyncLocker) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	m := r.sync.NewMutex(name, redsync.WithExpiry(r.ttl))
	for {
		err := m.LockContext(ctx) // 32 attempts
		var taken *redsync.ErrTaken
		switch {
		case err == nil:
			return func(ctx context.Context) error {
				released, err := m.UnlockContext(ctx)
				if err == nil && !released {
					err = errors.New("redsync: not released")
				}
				return err
			}, nil
		case !errors.As(err, &taken) || ctx.Err() != nil:
			return nil, err
		}
	}
}

func (r redsyncLocker) close() { _ = r.client.Close() }

type redislockLocker struct {
	client *redis.Client
	locks  *redislock.Client
	ttl    time.Duration
}

func openRedislock(_ context.Context, at string, ttl time.Duration) (locker, error) {
	c := openRedis(at)
	return redislockLocker{c, redislock.New(c), ttl}, nil
}

func (r redislockLocker) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	retry := &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockPoll)}
	for {
		l, err := r.locks.Obtain(ctx, name, r.ttl, retry) // for one TTL
		switch {
		case err == nil:
			return l.Release, nil
		case ctx.Err() != nil:
			return nil, err
		case !errors.Is(err, redislock.ErrNotObtained) && !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		}
	}
}

func (r redislockLocker) close() { _ = r.client.Close() }
