package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

const (
	// answerTimeout is how long Close waits for the answers of statements that are under way when
	// it begins.
	answerTimeout = time.Second
	// parallelism is how many locks Close and Locks.Unlock release at a time.
	parallelism = 8
)

// calls are what a client has under way, and the stages in which Close ends it: first those that
// wait, then statements that are not answered, and in the end its own work.
type calls struct {
	ttl         time.Duration            // bounds every statement
	connections func() (inUse, most int) // of the application's pool
	renew       func(context.Context)    // drops the pool's connections to a server that is read-only
	background  context.Context          // ends when Close begins
	stop        context.CancelCauseFunc  // ends it
	answering   context.Context          // ends answerTimeout later: a statement that is cut off may take a lock all the same
	hangUp      context.CancelFunc       // ends it
	tidying     context.Context          // ends when Close has done its work, or was given no more time for it
	abort       context.CancelFunc       // ends it
	underWay    tally                    // calls, and what they left to be undone
	served      atomic.Bool              // the database has answered a statement

	mu     sync.Mutex // protects closed; underWay is added to with it locked, or within a call
	closed bool
}

func newCalls(ttl time.Duration) *calls {
	c := &calls{ttl: ttl}
	c.background, c.stop = context.WithCancelCause(context.Background())
	c.tidying, c.abort = context.WithCancel(context.Background())
	c.answering, c.hangUp = context.WithCancel(c.tidying)
	return c
}

// begin counts a call in, so that Close waits for it; it MUST be followed by done. ErrClosed.
func (c *calls) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.underWay.add()
	return nil
}

func (c *calls) done() { c.underWay.done() }

// between runs f, and tells it whether a call is under way. No call begins meanwhile.
func (c *calls) between(f func(underWay bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.underWay.n.Load() > 0)
}

// tally is a sync.WaitGroup that tells whether there is something to wait for.
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

// Go runs f in a goroutine that is waited for.
func (t *tally) Go(f func()) {
	t.add()
	go func() {
		defer t.done()
		f()
	}()
}

// Wait returns when nothing is under way any more.
func (t *tally) Wait() { t.all.Wait() }

// close lets no call begin any more. It reports false where that was so already.
func (c *calls) close() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.closed
	c.closed = true
	return first
}

// closing reports whether Close has begun.
func (c *calls) closing() bool { return c.background.Err() != nil }

// statement runs one call of the engine within its bound. A call that its bound cut short is a
// database that does not answer; one that the caller's context cut short is the caller's. After one
// that met a read-only server the next does not meet it on the same connection. A password that was
// right before is being changed: to a client that was served that is an outage.
func (c *calls) statement(ctx context.Context, f func(ctx context.Context) error) error {
	inner, cancel := context.WithTimeout(ctx, c.ttl)
	defer cancel()
	err := f(inner)
	if err == nil {
		c.served.Store(true)
	} else if errors.Is(err, driver.ErrDenied) && c.served.Load() {
		return driver.Fail(driver.ErrUnavailable, err)
	}
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		cause := errors.New(err.Error())
		if why := c.usage(); why != nil {
			cause = fmt.Errorf("%w: %w", why, cause)
		}
		return driver.Fail(driver.ErrUnavailable, fmt.Errorf("no answer within %v: %w", c.ttl, cause))
	}
	if errors.Is(err, driver.ErrReadOnly) && c.renew != nil {
		c.renew(inner)
	}
	return err
}

// pastBroken runs again what may be repeated while it meets connections that broke before it: all
// that the pool keeps idle may have, since the server was restarted. Each try takes one out of it.
func (c *calls) pastBroken(ctx context.Context, f func() error) error {
	most := 0
	if c.connections != nil {
		_, most = c.connections()
	}
	for tries := 0; ; tries++ {
		err := f()
		if !broken(err) || tries > max(most, 10) || ctx.Err() != nil {
			return err
		}
	}
}

// usage says how the pool is used, where that may be why nothing was answered. It is errExhausted
// where there is no free connection.
func (c *calls) usage() error {
	if c.connections == nil {
		return nil
	}
	switch inUse, most := c.connections(); {
	case most == 0 && inUse == 0, inUse < most:
		return nil
	case most == 0:
		return fmt.Errorf("%d connections of the pool are in use", inUse)
	default:
		return fmt.Errorf("%w, all %d are in use", errExhausted, most)
	}
}

// unseen is the end of a context before it was known whether the name has a holder or a waiter.
func (c *calls) unseen(ctx context.Context, err error) error {
	if why := c.usage(); errors.Is(why, errExhausted) && (err == context.Canceled || err == context.DeadlineExceeded) { // no statement says more
		return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, why, ended(ctx, err))
	}
	return fmt.Errorf("%w: no answer before the context ended: %w", driver.ErrUnavailable, ended(ctx, err))
}

// pause waits for about d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d/2 + rand.N(d)):
	}
}

// backOff waits before a statement that has failed so often is run again: longer each time, since a
// database in the middle of a failover has thousands of clients that all try.
func backOff(ctx context.Context, tries int) {
	pause(ctx, min(time.Duration(tries)*5*time.Millisecond, 200*time.Millisecond))
}

// lockWithin waits for a mutex until ctx ends.
func lockWithin(ctx context.Context, try func() bool) error {
	for !try() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		pause(ctx, time.Millisecond)
	}
	return nil
}

// parallel does n things, some at a time, and returns what came of each.
func parallel(n int, do func(i int) error) []error {
	outcomes := make([]error, n)
	free := make(chan struct{}, parallelism)
	var all sync.WaitGroup
	for i := range n {
		free <- struct{}{}
		all.Go(func() {
			outcomes[i] = do(i)
			<-free
		})
	}
	all.Wait()
	return outcomes
}
