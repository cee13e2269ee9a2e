package quorum

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	// firstPause and longestPause bound the wait between two rounds, on average. It is random, and
	// twice as long after each failure, so that of several clients that split the nodes among
	// themselves one comes first. What bounds it is longer where the nodes are slow: of several
	// that come back within the time of one round, none succeeds.
	firstPause   = 10 * time.Millisecond
	longestPause = 250 * time.Millisecond
	mostRounds   = 8 // longestPause is no less than so many rounds
)

// Client takes locks over a quorum of nodes. It is safe for concurrent use; a process needs one.
type Client struct {
	config
	nodes    []Node
	majority int

	background context.Context // ends when Close begins
	stop       context.CancelCauseFunc
	calls      sync.WaitGroup // calls, locks, and what they left to be given back; added to with mu locked or from within one
	down       chan struct{}  // closed when nothing of the client runs any more

	mu     sync.Mutex // protects what follows
	closed bool
	locks  map[*Lock]bool
	rests  []rest // by node
}

// New makes a client of 3 or 5 nodes, in any order. Every process that locks the same names MUST be
// given the same databases, and the same WithQuarantine: a majority of one set need not meet a
// majority of another. It does no I/O. dblock.ErrInvalidOption; dblock.ErrConfig where the TTL of a
// node's client is too long for the quarantine.
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
			err := fmt.Errorf("%w: the TTL of its client, %v, is more than half of WithQuarantine(%v)", dblock.ErrConfig, n.ttl, config.quarantine)
			return nil, fmt.Errorf("quorum: %w", NodeError{i + 1, n.name, err})
		}
	}
	c := &Client{
		config: config, nodes: append([]Node(nil), nodes...), majority: majority(len(nodes)),
		down: make(chan struct{}), locks: map[*Lock]bool{}, rests: make([]rest, len(nodes)),
	}
	c.background, c.stop = context.WithCancelCause(context.Background())
	return c, nil
}

// Lock tries until it holds the lock, or until ctx ends. ctx bounds the trying only, not the lock.
// Who comes first is not who gets it first, and it is not reentrant: under the lock's own context
// the name is as taken as anywhere else.
//
// dblock.ErrNotAcquired, with the context's error, when ctx ends. dblock.ErrUnavailable when a
// majority of the nodes could not be had for as long as WithPatience says. The error is an *Error,
// which tells what each node said.
func (c *Client) Lock(ctx context.Context, name string) (*Lock, error) {
	return c.acquire(ctx, "lock", name, true)
}

// TryLock makes one round: it takes the lock unless too many nodes are held by somebody else
// (dblock.ErrNotAcquired), cannot be reached, or do not answer within their time limit
// (dblock.ErrUnavailable). Of several at the same moment perhaps none gets it.
func (c *Client) TryLock(ctx context.Context, name string) (*Lock, error) {
	return c.acquire(ctx, "trylock", name, false)
}

// Do runs fn under the lock, and unlocks, also when fn panics. The context of fn ends when ctx
// does, and with cause dblock.ErrLost when the lock is lost. Do returns what fn returns, joined
// with dblock.ErrLost if the lock was lost before fn returned.
func (c *Client) Do(ctx context.Context, name string, fn func(ctx context.Context, l *Lock) error) (err error) {
	l, err := c.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Unlock(ctx)) }()
	inner, cancel := context.WithCancelCause(context.WithValue(ctx, l, true))
	defer cancel(context.Canceled)
	defer context.AfterFunc(l.Context(), func() { cancel(context.Cause(l.Context())) })()
	return fn(inner, l)
}

// acquire makes rounds, with wait more than one.
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

	var last *Error     // of the latest round that was not cut short
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
		rest := backoff(tries, took)
		if !since.IsZero() { // the last round begins when the patience ends, and not a long pause later
			rest = max(firstPause, min(rest, (c.patience-time.Since(since))*4/5))
		}
		pause(trying, rest)
		if c.background.Err() != nil || trying.Err() != nil { // the nodes would be asked for nothing
			return nil, c.late(e, last, trying)
		}
	}
}

// late is the error of a call that was called off. What the nodes said before that says more than
// that they were not waited for.
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
	last.Err = fmt.Errorf("%w: %w", dblock.ErrNotAcquired, errors.Join(cause, last.Err))
	return last
}

// begin counts a call in, so that Close waits for it; false where Close was called.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.calls.Add(1)
	}
	return !c.closed
}

// Close gives back every lock that the client still holds, whose contexts end with cause
// dblock.ErrClosed, and calls off whoever waits. The nodes' clients are the application's and stay
// open. When it returns nil, nothing of the client runs any more; what is left when ctx ends goes
// on for no longer than the nodes' time limits. Close is idempotent.
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
			l.giveUp(dblock.ErrClosed)
		}
		go func() {
			c.calls.Wait()
			close(c.down)
		}()
	}
	select {
	case <-c.down:
		return nil
	case <-ctx.Done():
		return &Error{Op: "close", Err: context.Cause(ctx)}
	}
}

// release gives one node's lock back, for no longer than the node's time limit. What does not
// succeed by then the node's own client goes on with.
func (c *Client) release(l nodeLock) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.limit)
	defer cancel()
	return l.Unlock(ctx)
}

// backoff is the pause after so many rounds that failed, of which the last took so long.
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

// enlist puts a lock on the books; it MUST be delisted. False where the client is closed.
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
