package main

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// locker is a lock client of one process.
type locker interface {
	// lock waits for the lock of a name.
	lock(ctx context.Context, name string) (unlock func(context.Context) error, err error)
	close()
}

// peer is a lock of some system on one server.
type peer struct {
	name    string // of command line and child processes
	title   string
	durable string // when the server answers
	server  string
	open    func(ctx context.Context, at string, ttl time.Duration) (locker, error)
	// ttl is the TTL that the system chooses without a setting; 0: it has none.
	ttl time.Duration
	// session marks a lock that ends with its connection: there is no TTL.
	session bool
	// reference marks a peer that is no lock. Locks are compared with it.
	reference bool
	// crashes marks a peer that is measured by its crashes alone.
	crashes bool
}

const (
	synced   = "fsync before the answer"
	unsynced = "no fsync: a snapshot now and then"
	memory   = "in the server's memory"
)

var peers = slices.Concat(tablePeers, ownPeers, redisPeers, etcdPeers, zookeeperPeers)

// plainTTL is the TTL of a peer that has no default.
const plainTTL = 15 * time.Second

// start opens a client with the system's own TTL.
func (p peer) start(ctx context.Context, at string) (locker, error) { return p.openFor(ctx, at, 0) }

// openFor opens a client with a TTL; 0 is the system's own.
func (p peer) openFor(ctx context.Context, at string, ttl time.Duration) (locker, error) {
	return p.open(ctx, at, cmp.Or(ttl, p.ttl, plainTTL))
}

// pair locks and unlocks.
func pair(ctx context.Context, l locker, name string) error {
	unlock, err := l.lock(ctx, name)
	if err != nil {
		return err
	}
	return unlock(ctx)
}

func peerNamed(name string) (peer, bool) {
	i := slices.IndexFunc(peers, func(p peer) bool { return p.name == name })
	if i < 0 {
		return peer{}, false
	}
	return peers[i], true
}
