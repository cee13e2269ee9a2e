package ledger

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/protocol"
)

// Owner enters its locks again. Go does not tell goroutines apart, so an owner travels in the
// context: a call under a lock's context is of the same owner.
type Owner struct {
	Host, Thread string
	Explicit     bool // the application has named the owner: it outlives the process
	// private is not 0 for the owner of a lease that is acquired for a transaction. No other call
	// enters that lease.
	private int64
	// requests numbers the requests under the owner's locks. nil: the application has named the
	// owner.
	requests *atomic.Int64
}

// Anonymous reports whether the kind of an owner implies that it holds nothing that others could
// wait for.
func (o Owner) Anonymous() bool { return !o.Explicit && o.private == 0 }

// Owners determines the owner of each call. Each client has owners of its own, since another client
// is another session.
type Owners struct {
	host   string
	ledger *Ledger
}

// Enclosing is a lock whose context encloses another one.
type Enclosing struct {
	Owner
	Session   string
	Units, Of int
}

// callerKey is the key of the callers in a context, the latest first.
type callerKey struct{}

// caller is the owner in a context, with its path in the tree of locks.
type caller struct {
	Owner
	path  string // of the attempt that has got the lock of this context: see deadlock.PathOf
	joint bool   // attempts under it have the same path: their locks are held as one

	of    *Owners // the owners of the caller's client
	none  bool    // from here on the context has no owner of the client
	outer *caller // the caller in the parent context, also of another client
}

// threads numbers the owners of this process.
var threads atomic.Int64

// Of returns chosen, or else the owner in ctx, or else a new one.
func (w *Owners) Of(ctx context.Context, chosen *Owner) Owner {
	if chosen != nil {
		return *chosen
	}
	if o, ok := w.In(ctx); ok {
		return o
	}
	thread := fmt.Sprintf("%d/%d", os.Getpid(), threads.Add(1))
	return Owner{Host: w.host, Thread: thread, requests: new(atomic.Int64)}
}

// In returns the owner in ctx; false: there is none.
func (w *Owners) In(ctx context.Context) (o Owner, ok bool) {
	if c := w.caller(ctx); c != nil {
		return c.Owner, true
	}
	return Owner{}, false
}

// caller returns the client's own caller in ctx, or nil.
func (w *Owners) caller(ctx context.Context) *caller {
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

// latest returns the latest caller in ctx, of any client, or nil.
func latest(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// put returns ctx with a caller of the client.
func (w *Owners) put(ctx context.Context, c caller) context.Context {
	c.of, c.outer = w, latest(ctx)
	return context.WithValue(ctx, callerKey{}, &c)
}

// Elsewhere returns the locks of a name that enclose ctx and belong to other clients of this
// process.
func (w *Owners) Elsewhere(ctx context.Context, name string) (all []Enclosing) {
	asked := []*Owners{w}
	for c := latest(ctx); c != nil; c = c.outer {
		if !slices.Contains(asked, c.of) {
			asked = append(asked, c.of)
			all = append(all, c.of.ledger.enclosing(ctx, name)...)
		}
	}
	return all
}

// Attempt makes the id of an attempt of an owner, requested in ctx. The id tells the search for
// deadlocks under which locks the attempt is requested.
func (w *Owners) Attempt(ctx context.Context, o Owner) string {
	return deadlock.NewAttempt(w.Path(ctx, o))
}

// Path returns the path of an attempt. An owner that the application has named is one thread in all
// contexts. A transaction is one thread, too, since it keeps all its locks until its end.
func (w *Owners) Path(ctx context.Context, o Owner) string {
	c := w.caller(ctx)
	switch {
	case o.Explicit, c == nil:
		return ""
	case c.joint, o.private != 0:
		return c.path
	}
	return deadlock.Below(c.path, o.requests.Add(1))
}

// Private returns the owner of a lease that is acquired for a transaction. The database gets the
// owner in ctx, so that a cycle of waiters is found. In the client this owner has no other lease,
// and no other call enters its lease.
func (w *Owners) Private(ctx context.Context) Owner {
	o := w.Of(ctx, nil)
	o.Explicit, o.private = false, threads.Add(1)
	return o
}

// With returns ctx for calls under a lock of an owner, whose attempt had a path. An owner that
// enters a lock again keeps the longer path of the locks that it acquired since.
func (w *Owners) With(ctx context.Context, o Owner, path string) context.Context {
	if c := w.caller(ctx); c != nil && c.Owner == o && deadlock.Under(c.path, path) {
		path = c.path
	}
	return w.put(ctx, caller{Owner: o, path: path})
}

// Joint returns ctx for attempts of an owner whose locks are held as one.
func (w *Owners) Joint(ctx context.Context, o Owner) context.Context {
	return w.put(ctx, caller{Owner: o, path: w.Path(ctx, o), joint: true})
}

// As returns ctx with the caller of another context.
func (w *Owners) As(ctx, other context.Context) context.Context {
	if c := w.caller(other); c != nil {
		return w.put(ctx, *c)
	}
	return w.Without(ctx)
}

// Without returns ctx without an owner of the client.
func (w *Owners) Without(ctx context.Context) context.Context {
	return w.put(ctx, caller{none: true})
}

// Beside reports whether a request can be granted while the lock is held.
func (e Enclosing) Beside(r *protocol.Request) bool {
	return r.Units > 0 && e.Units > 0 && r.Of == e.Of && (r.Of == protocol.Readers || r.Units+e.Units <= r.Of)
}
