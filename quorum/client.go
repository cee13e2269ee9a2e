package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/tell"
)

const (
	// firstPause and longestPause bound the average pause between two rounds. The pause is random,
	// and doubles after each failure: of several clients that split the nodes among themselves, one
	// then comes first. The bound is longer where the nodes are slow: if several clients retry
	// within the time of one round, none succeeds.
	firstPause   = 10 * time.Millisecond
	longestPause = 250 * time.Millisecond
	mostRounds   = 8 // the bound is at least as long as so many rounds
)

// Client takes locks over a quorum of nodes. It is safe for concurrent use. A process needs one.
type Client struct {
	config
	nodes    []Node
	majority int
	logging  *tell.Queue

	background context.Context // ends when Close begins
	stop       context.CancelCauseFunc
	// calls counts calls, locks, and releases in the background. It grows with mu locked or within
	// one of these.
	calls sync.WaitGroup
	down  chan struct{} // closed when no goroutine of the client runs any more

	mu     sync.Mutex // protects the fields below
	closed bool
	locks  map[*Lock]bool
	states []nodeState // by node
}

// New makes a client of 3 or 5 nodes, in any order. All processes that lock the same names MUST use
// the same databases, because a majority of one set need not meet a majority of another. They MUST
// also use the same WithQuarantine. New does no I/O. dblock.ErrInvalidOption; dblock.ErrConfig
// where the TTL of a node's client is too long for the quarantine.
func New(nodes []Node, options ...Option) (*Client, error) {
	if err := check(nodes); err != nil {
		return nil, err
	}
	config, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	for i, n := range nodes {
		if 2*n.ttl > config.quarantine {
			err := fmt.Errorf("%w: the TTL of its client, %v, is more than half of WithQuarantine(%v)",
				dblock.ErrConfig, n.ttl, config.quarantine)
			return nil, fmt.Errorf("quorum: %w", NodeError{i + 1, n.name, err})
		}
	}
	c := &Client{
		config: config, nodes: append([]Node(nil), nodes...), majority: majority(len(nodes)),
		down: make(chan struct{}), locks: map[*Lock]bool{}, states: make([]nodeState, len(nodes)),
	}
	c.log, c.logging = tell.Logger(config.log)
	c.background, c.stop = context.WithCancelCause(context.Background())
	return c, nil
}

// Lock retries until it holds the lock, or until ctx ends. ctx bounds the tries, not the lock. The
// lock is not first-come, first-served. It is not reentrant: under the lock's own context the name
// is taken like anywhere else.
//
// dblock.ErrNotAcquired, with the context's error, when ctx ends. dblock.ErrUnavailable when no
// majority of the nodes was available for as long as WithPatience allows. The error is an *Error
// with the error of each node.
func (c *Client) Lock(ctx context.Context, name string) (*Lock, error) {
	return c.acquire(ctx, "lock", name, true)
}

// TryLock makes one round. It takes the lock unless too many nodes have another holder
// (dblock.ErrNotAcquired), cannot be reached, or do not answer within their time limit
// (dblock.ErrUnavailable). Of several calls at the same moment perhaps none gets the lock.
func (c *Client) TryLock(ctx context.Context, name string) (*Lock, error) {
	return c.acquire(ctx, "trylock", name, false)
}

// Do runs fn under the lock, and unlocks, also when fn panics. The context of fn ends with ctx, and
// with cause dblock.ErrLost when the lock is lost. Do returns the error of fn, joined with
// dblock.ErrLost if the lock was lost before fn returned.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context, l *Lock) error) (err error) {
	l, err := c.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = contract.JoinUnlock(err, l.Unlock(ctx)) }()
	inner, cancel := contract.UntilEither(context.WithValue(ctx, l, true), l.Context())
	defer cancel(context.Canceled)
	return fn(inner, l)
}

// acquire makes one round, or with wait as many as are needed.
func (c *Client) acquire(ctx context.Context, op, name string, wait bool) (*Lock, error) {
	if ctx == nil {
		return nil, &Error{Op: op, Name: name, Err: fmt.Errorf("%w: the context is nil", dblock.ErrInvalidOption)}
	}
	if !c.begin() {
		return nil, &Error{Op: op, Name: name, Err: dblock.ErrClosed}
	}
	defer c.calls.Done()
	trying, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.background, func() { cancel(dblock.ErrClosed) })()

	var last *Error     // of the latest round that was not cancelled
	var since time.Time // since when there was no majority; zero: there was one
	for tries := 1; ; tries++ {
		began := time.Now()
		l, took, failures := c.round(trying, name)
		if l != nil {
			return l, nil
		}
		e, held, final := c.verdict(op, name, failures)
		switch {
		case c.background.Err() != nil || trying.Err() != nil:
			return nil, c.late(e, last, trying)
		case final || held && !wait:
			return nil, e
		case held:
			since = time.Time{}
		case since.IsZero():
			since = began
			fallthrough
		default:
			if !wait || time.Since(since) >= c.patience {
				return nil, e
			}
		}
		last = e
		delay := backoff(tries, took)
		if !since.IsZero() { // so that the last round begins when the patience ends, and not a long pause later
			delay = max(firstPause, min(delay, (c.patience-time.Since(since))*4/5))
		}
		pause(trying, delay)
		if c.background.Err() != nil || trying.Err() != nil { // another round would be useless
			return nil, c.late(e, last, trying)
		}
	}
}

// late returns the error of a call that was cancelled. The errors of the last whole round say more
// than those of the cancelled round.
func (c *Client) late(e, last *Error, trying context.Context) *Error {
	if c.background.Err() != nil {
		e.Err = dblock.ErrClosed
		return e
	}
	cause := context.Cause(trying)
	if last == nil {
		e.Err = fmt.Errorf("%w: %w", dblock.ErrNotAcquired, cause)
		return e
	}
	last.Err = fmt.Errorf("%w: %w", dblock.ErrNotAcquired, driver.Join(cause, last.Err))
	return last
}

// begin registers a call, so that Close waits for it. It returns false after Close.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.calls.Add(1)
	}
	return !c.closed
}

// Close releases every lock that the client still holds, and cancels every waiting call. The
// contexts of the locks end with cause dblock.ErrClosed. The nodes' clients are the application's
// and stay open. When Close returns nil, no goroutine of the client runs any more. If ctx ends
// before that, the rest goes on for no longer than the nodes' time limits. Close returns within ten
// seconds and three of these limits, even if a node or a driver hangs. Close is idempotent.
func (c *Client) Close(ctx context.Context) error {
	if ctx == nil {
		return &Error{Op: "close", Err: fmt.Errorf("%w: the context is nil", dblock.ErrInvalidOption)}
	}
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	locks := make([]*Lock, 0, len(c.locks))
	for l := range c.locks {
		locks = append(locks, l)
	}
	c.mu.Unlock()
	if first {
		c.stop(dblock.ErrClosed)
		for _, l := range locks {
			l.end(dblock.ErrClosed)
		}
		go func() {
			c.calls.Wait()
			tell.Flush(c.logging)
			close(c.down)
		}()
	}
	limit := time.NewTimer(contract.CloseTimeout + contract.StuckTimeout + 3*c.limit)
	defer limit.Stop()
	select {
	case <-c.down:
		return nil
	case <-ctx.Done():
		return &Error{Op: "close", Err: context.Cause(ctx)}
	case <-limit.C:
		return &Error{Op: "close", Err: contract.ErrStuck}
	}
}

// release releases one node's lock, within the node's time limit. If that fails, the node's own
// client keeps retrying.
func (c *Client) release(l nodeLock) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.limit)
	defer cancel()
	return l.Unlock(ctx)
}

// backoff returns the pause after a number of failed rounds. took is the time of the last one.
func backoff(tries int, took time.Duration) time.Duration {
	return min(max(firstPause, took)<<min(tries, 8), max(longestPause, mostRounds*took))
}

// pause waits for about d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d/4 + rand.N(d))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// enlist registers a lock, which MUST be delisted. It returns false if the client is closed.
func (c *Client) enlist(l *Lock) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.locks[l] = true
	c.calls.Add(1)
	return true
}

func (c *Client) delist(l *Lock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.locks, l)
	c.calls.Done()
}
