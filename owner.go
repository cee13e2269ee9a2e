package dblock

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// owner is what enters a lock. Go has no thread to tell goroutines apart by, so an owner travels in
// the context: what is called under a lock's context is the same owner.
type owner struct {
	host, thread string
	explicit     bool  // named by Owner: it outlives the process
	errand       int64 // not 0: a lease that it gets for a transaction, and that nothing else enters
}

type ownerKey struct{ client any } // of one client: another client is another session, so another owner

// threads numbers the owners of this process.
var threads atomic.Int64

func ownerOf(ctx context.Context, client any, host string, chosen *owner) owner {
	if chosen != nil {
		return *chosen
	}
	if o, ok := ctx.Value(ownerKey{client}).(owner); ok {
		return o
	}
	return owner{host: host, thread: fmt.Sprintf("%d/%d", os.Getpid(), threads.Add(1))}
}

// errandOf is the owner in ctx, on an errand: to the database it is the same owner, so that a ring
// of those that wait for each other is seen; to the client it has no other lease, and nobody enters
// the one that it gets.
func errandOf(ctx context.Context, client any, host string) owner {
	o := ownerOf(ctx, client, host, nil)
	o.explicit, o.errand = false, threads.Add(1)
	return o
}

func (o owner) in(ctx context.Context, client any) context.Context {
	return context.WithValue(ctx, ownerKey{client}, o)
}

// gates let one goroutine at a time enter a name as the same owner, so that the second finds what
// the first got.
type gates struct {
	mu   sync.Mutex // protects busy
	busy map[gateKey]chan struct{}
}

type gateKey struct {
	name string
	owner
}

// enter waits until nobody else is at the gate; it returns false when ctx ends first, or at once if
// wait is false.
func (g *gates) enter(ctx context.Context, k gateKey, wait bool) bool {
	for {
		g.mu.Lock()
		busy, taken := g.busy[k]
		if !taken {
			g.busy[k] = make(chan struct{})
		}
		g.mu.Unlock()
		if !taken {
			return true
		}
		if !wait {
			return false
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return false
		}
	}
}

func (g *gates) leave(k gateKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.busy[k])
	delete(g.busy, k)
}
