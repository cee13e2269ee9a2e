package quorum

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
)

// Node is one of the databases. On makes it. The zero value is not usable.
type Node struct {
	node   node
	client any // identifies the node
	ttl    time.Duration
	name   string
}

// On makes a node of a client. The client stays the application's, which may use it for other
// locks, and closes it after Client.Close. Nodes may be on different engines with locks in tables.
func On[TX any](client *dblock.Client[TX]) Node {
	if client == nil {
		return Node{}
	}
	return Node{node: on[TX]{client}, client: client, ttl: client.TTL()}
}

// Named gives the node a name for errors. Default: its number.
func (n Node) Named(name string) Node {
	n.name = name
	return n
}

// node is the part of a database that the quorum needs. The promises of this package rest on the
// promises of these methods and no others.
type node interface {
	// TryLock takes a name on this node alone. As long as the node keeps its data, the lock's
	// context ends before the node grants the name to another client. If a call that took the name
	// returns an error, the node's client releases the name.
	TryLock(ctx context.Context, name string) (nodeLock, error)

	// Memory returns the age of the node's data, and its floor. If the age is not known, it counts
	// from this call.
	Memory(ctx context.Context) (memory, error)

	// Highest returns a token at least as high as every token that the node has granted or
	// received, as far as it remembers.
	Highest(ctx context.Context) (int64, error)

	// Renew makes the node's memory begin now, with a floor.
	Renew(ctx context.Context, floor int64) error
}

// nodeLock is a lock on one node.
type nodeLock interface {
	Token() int64
	Context() context.Context
	Until() time.Time
	Raise(ctx context.Context, token int64) (int64, error)
	Unlock(ctx context.Context) error
}

// memory is a node's knowledge of its past. Of the time before age ago the node only knows that no
// token was above floor. With floor 0 it does not know that either.
type memory struct {
	age   time.Duration
	floor int64
}

// on is a node on a database.
type on[TX any] struct{ client *dblock.Client[TX] }

func (o on[TX]) TryLock(ctx context.Context, name string) (nodeLock, error) {
	l, err := o.client.TryLock(ctx, name)
	if err != nil {
		return nil, err
	}
	return held{l}, nil
}

func (o on[TX]) Memory(ctx context.Context) (memory, error) {
	i, err := o.incarnation(ctx, false, 0)
	return memory{i.Age, i.Floor}, err
}

func (o on[TX]) Highest(ctx context.Context) (int64, error) {
	i, err := o.incarnation(ctx, false, -1)
	return i.Floor, err
}

func (o on[TX]) Renew(ctx context.Context, floor int64) error {
	_, err := o.incarnation(ctx, true, floor)
	return err
}

// incarnation calls driver.Quorum.Incarnation.
func (o on[TX]) incarnation(ctx context.Context, renew bool, floor int64) (i driver.Incarnation, err error) {
	err = inside.Of(o.client).Inquire(ctx, func(ctx context.Context, engine driver.Backend) (err error) {
		i, err = engine.Incarnation(ctx, renew, floor)
		return err
	})
	return i, err
}

// held is a lock on a database.
type held struct{ *dblock.Lock }

// Raise lifts the fencing token to at least a value, and returns the token after that.
func (l held) Raise(ctx context.Context, token int64) (int64, error) {
	return inside.Of(l.Lock).Raise(ctx, token)
}
