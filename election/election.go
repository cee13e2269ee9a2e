package election

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
)

// The errors of this package, for errors.Is. Its other errors are those of package dblock.
var (
	// ErrResigned is the cause of a leader's context after Resign.
	ErrResigned = errors.New("resigned")

	// ErrNotLeader: Resign was called for an election that these Elections do not lead.
	ErrNotLeader = errors.New("not the leader")
)

// The kinds of events of terms in the history of the name.
const (
	elected  = "elected"
	resigned = "resigned"
)

// Elections runs the campaigns and observations of one client, under any number of names. It is
// safe for concurrent use.
type Elections struct {
	lock      func(ctx context.Context, name string, options ...dblock.LockOption) (*dblock.Lock, error) // the client's
	inspector *inspect.Inspector

	mu    sync.Mutex // protects terms
	terms map[string]*Term
}

// New makes the Elections of a client with locks in tables. It does no I/O and starts nothing. End
// all campaigns before the client is closed: Close releases their locks without waiting for their
// functions.
func New[TX any](client *dblock.Client[TX]) *Elections {
	return &Elections{lock: client.Lock, inspector: inspect.New(client), terms: map[string]*Term{}}
}

// Resign ends the current term of a campaign of these Elections. The context of its function ends
// with cause ErrResigned, the function returns, the next candidate leads, and the resigned one goes
// to the end of the queue. Without another candidate it is elected again. Resign waits until the
// lock is released or ctx ends. Under the leader's own context it does not wait.
//
// ErrNotLeader without a current term. Another error: the lock could not be released yet. The
// client keeps retrying the release.
func (e *Elections) Resign(ctx context.Context, name string) error {
	if ctx == nil {
		return fail("resign", name, fmt.Errorf("%w: the context is nil", dblock.ErrInvalidOption))
	}
	t := e.term(name)
	if t == nil {
		return fail("resign", name, ErrNotLeader)
	}
	t.Resign()
	if ctx.Value(t) != nil {
		return nil
	}
	select {
	case <-t.over:
		return fail("resign", name, t.failure)
	case <-ctx.Done():
		return fail("resign", name, fmt.Errorf("its function has not returned, or the lock was not released yet: %w",
			context.Cause(ctx)))
	}
}

// fail returns a LockError of an error, and nil of nil. The error of a call on the election's lock
// is shown as that of op: callers of this package do not lock.
func fail(op, name string, err error) error {
	if of, ok := err.(*dblock.LockError); ok {
		err = of.Err
	}
	if err == nil {
		return nil
	}
	return &dblock.LockError{Op: op, Name: name, Err: err}
}

// term returns the latest term of a name whose lock has not ended, or nil.
func (e *Elections) term(name string) *Term {
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.terms[name]; t != nil && t.lock.Context().Err() == nil {
		return t
	}
	return nil
}

func (e *Elections) enter(t *Term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.terms[t.Name()] = t
}

// leave deletes a term, unless another campaign of the name has won since.
func (e *Elections) leave(t *Term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.terms[t.Name()] == t {
		delete(e.terms, t.Name())
	}
}
