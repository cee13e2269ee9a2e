package main

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"
)

var zookeeperPeers = []peer{
	{name: "zookeeper", title: "ZooKeeper, `zk.Lock`, one server", durable: synced, server: "zookeeper",
		open: openZooKeeper},
}

type zooKeeperLocker struct{ conn *zk.Conn }

func openZooKeeper(_ context.Context, at string, ttl time.Duration) (locker, error) {
	conn, _, err := zk.Connect([]string{at}, ttl, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	return zooKeeperLocker{conn}, err
}

// lock waits without ctx, which zk.Lock does not know.
func (z zooKeeperLocker) lock(_ context.Context, name string) (func(context.Context) error, error) {
	l := zk.NewLock(z.conn, "/peers/"+name, zk.WorldACL(zk.PermAll))
	if err := l.Lock(); err != nil {
		return nil, err
	}
	return func(context.Context) error { return l.Unlock() }, nil
}

func (z zooKeeperLocker) close() { z.conn.Close() }

// silent drops the log of the client, which has its reconnects.
type silent struct{}

func (silent) Printf(string, ...any) {}
