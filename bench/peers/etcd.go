package main

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

var etcdPeers = []peer{
	{name: "etcd", title: "etcd, `concurrency.Mutex`, one member", durable: synced, server: "etcd",
		ttl: 60 * time.Second, open: openEtcd},
}

// etcdLocker has a session for each lock that is held or waited for at a time: two mutexes of one
// session and name are one owner, and do not exclude each other.
type etcdLocker struct {
	client *clientv3.Client
	ttl    time.Duration
	free   chan *concurrency.Session
}

func openEtcd(_ context.Context, at string, ttl time.Duration) (locker, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{at}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	return etcdLocker{c, ttl, make(chan *concurrency.Session, manyConns)}, err
}

func (e etcdLocker) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	s, err := e.session()
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s, "/peers/"+name)
	if err := m.Lock(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return func(ctx context.Context) error {
		defer func() { e.free <- s }()
		return m.Unlock(ctx)
	}, nil
}

func (e etcdLocker) session() (*concurrency.Session, error) {
	select {
	case s := <-e.free:
		return s, nil
	default:
		return concurrency.NewSession(e.client, concurrency.WithTTL(int(e.ttl.Seconds())))
	}
}

func (e etcdLocker) close() {
	for {
		select {
		case s := <-e.free:
			_ = s.Close()
		default:
			_ = e.client.Close()
			return
		}
	}
}
