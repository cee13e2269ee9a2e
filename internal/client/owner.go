package client

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/deadlock"
)

// Owner is what enters a lock again. Go has no thread that would tell goroutines apart, so an owner
// travels in the context: what is called under a lock's context is the same owner.
type Owner struct {
	Host, Thread string
	Explicit     bool  // the application has named it: it outlives the process
	errand       int64 // not 0: the owner of a lease that is taken for a transaction, which nothing else enters
}

// owners finds out whose call it is. Another client is another session, and so another owner.
type owners struct {
	host  string
	holds func(ctx context.Context, name string) []enclosing // what the client has of a name that ctx is under
}

// enclosing is a lock that a context is under.
type enclosing struct {
	Owner
	session   string
	units, of int
}

// callerKey is the key of the callers in a context, the latest first.
type callerKey struct{}

// caller is the owner in a context, with its place among the locks.
type caller struct {
	Owner
	path  string // of the attempt whose lock the context is of: see deadlock.PathOf
	joint bool   // attempts have this path themselves: they are for locks that are held as one

	of    *owners // of which client
	none  bool    // from here on the context has no owner of the client
	outer *caller // of what the context was made of, also of other clients
}

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
	if c := w.caller(ctx); c != nil {
		return c.Owner, true
	}
	return Owner{}, false
}

// caller is the client's own in ctx, or nil.
func (w *owners) caller(ctx context.Context) *caller {
	for c := latest(ctx); c != nil; c = c.outer {
		if c.of == w {
			if c.none {
				return nil
			}
			return c
		}
	}
	return nil
}

// latest is the caller that ctx got last, of whatever client, or nil.
func latest(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// put is ctx with a caller of the client's.
func (w *owners) put(ctx context.Context, c caller) context.Context {
	c.of, c.outer = w, latest(ctx)
	return context.WithValue(ctx, callerKey{}, &c)
}

// elsewhere are the locks of a name that ctx is under, of other clients of this process.
func (w *owners) elsewhere(ctx context.Context, name string) (all []enclosing) {
	asked := []*owners{w}
	for c := latest(ctx); c != nil; c = c.outer {
		if !slices.Contains(asked, c.of) {
			asked = append(asked, c.of)
			all = append(all, c.of.holds(ctx, name)...)
		}
	}
	return all
}

// attempt names an attempt of an owner's, which is asked for in ctx. What is named so is in the way
// of those locks alone that it is asked for under.
func (w *owners) attempt(ctx context.Context, o Owner) string {
	return deadlock.NewAttempt(w.path(ctx, o))
}

// path is that of an attempt. An owner that the application has named is one thread, whatever the
// contexts are. So is a transaction, which holds what it has locked until its end.
func (w *owners) path(ctx context.Context, o Owner) string {
	c := w.caller(ctx)
	switch {
	case o.Explicit, c == nil:
		return ""
	case c.joint, o.errand != 0:
		return c.path
	}
	return deadlock.Below(c.path)
}

// errand is the owner in ctx on an errand. To the database it is the same owner, so that a cycle of
// waiters is found. To the client it has no other lease, and nothing enters the one that it gets.
func (w *owners) errand(ctx context.Context) Owner {
	o := w.of(ctx, nil)
	o.Explicit, o.errand = false, threads.Add(1)
	return o
}

// with is ctx for what is called under a lock of an owner's, which an attempt with a path has got.
// An owner that enters a lock again stays under those that it has come to since.
func (w *owners) with(ctx context.Context, o Owner, path string) context.Context {
	if c := w.caller(ctx); c != nil && c.Owner == o && deadlock.Under(c.path, path) {
		path = c.path
	}
	return w.put(ctx, caller{Owner: o, path: path})
}

// joint is ctx for attempts of an owner's at locks that are held as one.
func (w *owners) joint(ctx context.Context, o Owner) context.Context {
	return w.put(ctx, caller{Owner: o, path: w.path(ctx, o), joint: true})
}

// as is ctx with the caller of another context.
func (w *owners) as(ctx, other context.Context) context.Context {
	if c := w.caller(other); c != nil {
		return w.put(ctx, *c)
	}
	return w.without(ctx)
}

// without is ctx for a call that is another owner's.
func (w *owners) without(ctx context.Context) context.Context {
	return w.put(ctx, caller{none: true})
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
