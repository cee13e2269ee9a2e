package dblock

import (
	"context"
	"fmt"
	"slices"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
)

// Locks are several locks that are held as one. They are safe for concurrent use.
type Locks struct {
	handles
	all []*Lock // in the order of their names
}

type handles = inside.Inside[*client.Locks]

// LockAll waits until it holds all names, or until ctx ends: then it holds none. Names are taken in
// the order of their bytes, and not in the given order, so that no two LockAlls wait for each
// other. A name that is given twice counts once. Names that are free are taken together, in one
// transaction (on PostgreSQL in one round trip, for up to 1,000 names). For a name that is held
// LockAll waits in the queue like any waiter, and holds the names before it meanwhile.
//
// Options are those of Lock, for all names. For gives one of the names further options. All names
// have the same owner. Errors are those of Lock, and name the lock that failed. ErrInvalidOption
// without a name.
func (c *Client[TX]) LockAll(ctx context.Context, names []string, options ...LocksOption) (*Locks, error) {
	return c.acquireAll(ctx, "lockall", names, options, true)
}

// TryLockAll takes all names if every one of them is free, and otherwise none. ErrNotAcquired at
// once, which names one that is not free.
func (c *Client[TX]) TryLockAll(ctx context.Context, names []string, options ...LocksOption) (*Locks, error) {
	return c.acquireAll(ctx, "trylockall", names, options, false)
}

func (c *Client[TX]) acquireAll(
	ctx context.Context, op string, names []string, options []LocksOption, wait bool,
) (*Locks, error) {
	inner, err := c.core()
	if err == nil && ctx == nil {
		err = contract.ErrNilContext
	}
	if err != nil {
		return nil, &LockError{op, "", err}
	}
	wants, failed, err := wantsOf(names, options)
	if err != nil {
		return nil, &LockError{op, failed, err}
	}
	core, failed, err := inner.AcquireAll(ctx, wants, wait)
	if err != nil {
		return nil, &LockError{op, failed, err}
	}
	l := inside.Make[Locks](core)
	for _, one := range core.All() {
		l.all = append(l.all, inside.Make[Lock](one))
	}
	return l, nil
}

// wantsOf returns the request for each name, in the order of the names. With an error it returns
// the name that failed.
func wantsOf(names []string, options []LocksOption) (wants []client.Want, failed string, err error) {
	of, err := contract.OfSeveral(options)
	switch {
	case err != nil:
		return nil, "", err
	case len(names) == 0:
		return nil, "", fmt.Errorf("%w: no names", ErrInvalidOption)
	}
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	for name := range of.Each {
		if _, there := slices.BinarySearch(names, name); !there {
			return nil, name, fmt.Errorf("%w: For a name that is not asked for", ErrInvalidOption)
		}
	}
	for _, name := range names {
		w, err := wantOf(name, slices.Concat(of.All, of.Each[name]))
		if err == nil && len(wants) > 0 && !sameOwner(w.Owner, wants[0].Owner) {
			err = fmt.Errorf("%w: all names have one Owner: give it for all", ErrInvalidOption)
		}
		if err == nil && len(wants) > 0 && w.AtMost != wants[0].AtMost {
			err = fmt.Errorf("%w: WaitAtMost is for all names together: give it for all", ErrInvalidOption)
		}
		if err != nil {
			return nil, name, err
		}
		wants = append(wants, *w)
	}
	return wants, "", nil
}

func sameOwner(a, b *client.Owner) bool { return a == b || a != nil && b != nil && *a == *b }

// All returns the locks, in the order of the bytes of their names: for Client.Guard and
// Client.UnlockTx.
func (l *Locks) All() []*Lock { return slices.Clone(l.all) }

// Names returns the names, in the order of their bytes.
func (l *Locks) Names() []string {
	names := make([]string, len(l.all))
	for i, one := range l.all {
		names[i] = one.Name()
	}
	return names
}

// Tokens returns the fencing token of each name.
func (l *Locks) Tokens() map[string]int64 {
	tokens := make(map[string]int64, len(l.all))
	for _, one := range l.all {
		tokens[one.Name()] = one.Token()
	}
	return tokens
}

// Token returns the fencing token of one name; 0 for a name that is not among them.
func (l *Locks) Token(name string) int64 { return l.Tokens()[name] }

// Context ends when the first of the locks does, with its cause: see Lock.Context. Under it all
// names are entered again at once.
func (l *Locks) Context() context.Context { return inside.Of(l.handles).Context() }

// Progress reports for all locks that the work under them makes progress: see the option Progress.
func (l *Locks) Progress() {
	for _, one := range l.all {
		one.Progress()
	}
}

// Unlock releases all locks, as Lock.Unlock does. The error names each that was lost or could not
// be released before ctx ended. A lock that waits for a transaction does not keep the others.
func (l *Locks) Unlock(ctx context.Context) error {
	if ctx == nil {
		return &LockError{"unlockall", "", fmt.Errorf("%w: the context is nil", ErrInvalidOption)}
	}
	var failures []error
	for i, err := range inside.Of(l.handles).Unlock(ctx) {
		failures = append(failures, fail("unlock", l.all[i].Name(), err))
	}
	return driver.Join(failures...)
}
