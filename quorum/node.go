package quorum

import (
	"context"
	"time"

	"github.com/dblock-go/dblock"
)

// Node is one of the databases, as On makes it. The zero value is none.
type Node struct {
	node   node
	client any // tells nodes apart
	ttl    time.Duration
	name   string
}

// On makes a node of a client, which goes on belonging to the application: it is used for other
// locks if the application likes, and closed by it, after Client.Close. Nodes may be on different
// engines, with locks in tables.
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

// node is what the quorum needs of a database: all that is promised here rests on these promises
// and no others.
type node interface {
	// TryLock takes a name on this node alone. The lock's context ends before the node lets anybody
	// else have the name, as long as the node keeps its data. What a call took that was answered
	// with an error is given back by the node.
	TryLock(ctx context.Context, name string) (nodeLock, error)

	// Memory tells since when the node has had its data; where it cannot tell, since this call.
	Memory(ctx context.Context) (memory, error)

	// Highest is at least every token that the node ever granted or was told, as far as it
	// remembers.
	Highest(ctx context.Context) (int64, error)

	// Renew makes the node's memory begin now, with a floor.
	Renew(ctx context.Context, floor int64) error
}

// nodeLock is a *dblock.Lock without its transactions.
type nodeLock interface {
	Token() int64
	Context() context.Context
	Until() time.Time
	Raise(ctx context.Context, token int64) (int64, error)
	Unlock(ctx context.Context) error
}

// memory is what a node knows of its past: nothing from before age ago, but that no token was above
// floor then. With floor 0 it does not know that either.
type memory struct {
	age   time.Duration
	floor int64
}

// on is a node that is a database.
type on[TX any] struct{ client *dblock.Client[TX] }

func (o on[TX]) TryLock(ctx context.Context, name string) (nodeLock, error) {
	l, err := o.client.TryLock(ctx, name)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (o on[TX]) Memory(ctx context.Context) (memory, error) {
	i, err := o.client.Incarnation(ctx, false, 0)
	return memory{i.Age, i.Floor}, err
}

func (o on[TX]) Highest(ctx context.Context) (int64, error) {
	i, err := o.client.Incarnation(ctx, false, -1)
	return i.Floor, err
}

func (o on[TX]) Renew(ctx context.Context, floor int64) error {
	_, err := o.client.Incarnation(ctx, true, floor)
	return err
}
