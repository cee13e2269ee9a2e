package store

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/dblock-go/dblock/internal/contract"
)

// Calls counts the calls of a client in flight, and has the contexts with which Close ends them.
type Calls struct {
	Background context.Context         // ends when Close begins
	Stop       context.CancelCauseFunc // ends Background
	// Answering ends after Background: a statement that is cut off may still take a lock.
	Answering context.Context
	HangUp    context.CancelFunc // ends Answering
	Tidying   context.Context    // ends when Close has done its work, or its time has passed
	Abort     context.CancelFunc // ends Tidying

	inFlight tally

	mu     sync.Mutex // protects closed; inFlight grows with mu locked, or within a call
	closed bool
}

// NewCalls makes the calls of a client.
func NewCalls() *Calls {
	c := &Calls{}
	c.Background, c.Stop = context.WithCancelCause(context.Background())
	c.Tidying, c.Abort = context.WithCancel(context.Background())
	c.Answering, c.HangUp = context.WithCancel(c.Tidying)
	return c
}

// Begin counts a call, so that Close waits for it. Done MUST follow. ErrClosed.
func (c *Calls) Begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return contract.ErrClosed
	}
	c.inFlight.add()
	return nil
}

// Done ends a call that Begin counted.
func (c *Calls) Done() { c.inFlight.done() }

// Go runs f in a goroutine that Close waits for. MUST be called within a call.
func (c *Calls) Go(f func()) {
	c.inFlight.add()
	go func() {
		defer c.inFlight.done()
		f()
	}()
}

// Wait returns when nothing is in flight any more.
func (c *Calls) Wait() { c.inFlight.all.Wait() }

// between calls f with whether a call is in flight. No call begins while f runs.
func (c *Calls) between(f func(inFlight bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.inFlight.n.Load() > 0)
}

// Close lets no further call begin. It returns false on a second call.
func (c *Calls) Close() (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = !c.closed
	c.closed = true
	return first
}

// Closing reports whether Close has begun.
func (c *Calls) Closing() bool { return c.Background.Err() != nil }

// tally is a sync.WaitGroup that can be read.
type tally struct {
	n   atomic.Int64
	all sync.WaitGroup
}

func (t *tally) add() {
	t.n.Add(1)
	t.all.Add(1)
}

func (t *tally) done() {
	t.n.Add(-1)
	t.all.Done()
}
