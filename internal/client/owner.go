package client

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// Owner is what enters a lock again. Go has no thread that would tell goroutines apart, so an owner
// travels in the context: what is called under a lock's context is the same owner.
type Owner struct {
	Host, Thread string
	Explicit     bool  // the application has named it: it outlives the process
	errand       int64 // not 0: the owner of a lease that is taken for a transaction, which nothing else enters
}

// owners finds out whose call it is. Another client is another session, and so another owner.
type owners struct{ host string }

type ownerKey struct{ of *owners }

// threads numbers the owners of this process.
var threads atomic.Int64

// of is the chosen owner, or else the one in ctx, or else a new one.
func (w *owners) of(ctx context.Context, chosen *Owner) Owner {
	if chosen != nil {
		return *chosen
	}
	if o, ok := w.in(ctx); ok {
		return o
	}
	return Owner{Host: w.host, Thread: fmt.Sprintf("%d/%d", os.Getpid(), threads.Add(1))}
}

// in is the owner in ctx; false: there is none.
func (w *owners) in(ctx context.Context) (o Owner, ok bool) {
	o, ok = ctx.Value(ownerKey{w}).(Owner)
	return o, ok
}

// errand is the owner in ctx on an errand. To the database it is the same owner, so that a cycle of
// waiters is found. To the client it has no other lease, and nothing enters the one that it gets.
func (w *owners) errand(ctx context.Context) Owner {
	o := w.of(ctx, nil)
	o.Explicit, o.errand = false, threads.Add(1)
	return o
}

// with is ctx with the owner in it.
func (w *owners) with(ctx context.Context, o Owner) context.Context {
	return context.WithValue(ctx, ownerKey{w}, o)
}

// without is ctx for a call that is another owner's.
func (w *owners) without(ctx context.Context) context.Context {
	return context.WithValue(ctx, ownerKey{w}, nil)
}

// entry is a name as one owner enters it.
type entry struct {
	name string
	Owner
}

// entries let one goroutine at a time acquire a name as the same owner, so that the second finds
// what the first has got.
type entries struct {
	mu   sync.Mutex // protects busy
	busy map[entry]chan struct{}
}

func newEntries() *entries { return &entries{busy: map[entry]chan struct{}{}} }

// lock waits until no other goroutine is at the entry. It returns false when ctx ends first, or at
// once where wait is false.
func (e *entries) lock(ctx context.Context, k entry, wait bool) bool {
	for {
		e.mu.Lock()
		busy, taken := e.busy[k]
		if !taken {
			e.busy[k] = make(chan struct{})
		}
		e.mu.Unlock()
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

func (e *entries) unlock(k entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.busy[k])
	delete(e.busy, k)
}
