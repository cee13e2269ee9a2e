package sessionlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
)

const (
	defaultTTL     = 15 * time.Second
	minTTL, maxTTL = time.Second, 24 * time.Hour
)

// Option configures a client.
type Option struct{ set func(c *Config) }

// Set makes an Option.
func Set(set func(c *Config)) Option { return Option{set} }

// Config configures a client.
type Config struct {
	TTL time.Duration // how long a wait survives the absence of the server
	// App is the application in the server's list of connections, if the server has such a name.
	App string
	Log *slog.Logger
}

// Configured validates options.
func Configured(options []Option) (Config, error) {
	c := Config{TTL: defaultTTL, App: filepath.Base(os.Args[0]), Log: slog.Default()}
	for _, o := range options {
		if o.set == nil {
			return c, fmt.Errorf("%w: a zero option", contract.ErrInvalidOption)
		}
		o.set(&c)
	}
	switch {
	case c.TTL < minTTL || c.TTL > maxTTL:
		return c, fmt.Errorf("%w: TTL %v: want %v to %v", contract.ErrInvalidOption, c.TTL, minTTL, maxTTL)
	case c.Log == nil:
		return c, fmt.Errorf("%w: the logger is nil: want one, slog.DiscardHandler for silence",
			contract.ErrInvalidOption)
	}
	if err := contract.CheckText(c.App); err != nil {
		return c, fmt.Errorf("%w: app %w", contract.ErrInvalidOption, err)
	}
	return c, nil
}

// Client takes locks on a keeper, and is a dblock.Locker. It adds handles to the keeper: their
// contexts, and the owner that enters a name again under such a context.
type Client struct {
	keeper   keeper
	shares   bool            // the server has shared locks
	open     context.Context // ends when Close begins
	closing  context.CancelFunc
	tidying  context.Context // ends when Close may take no longer
	abort    context.CancelFunc
	underWay sync.WaitGroup // calls in flight
	down     chan struct{}  // closed when nothing runs any more
	stuck    chan struct{}  // closed when Close stops waiting for down
	failure  error          // the error of releasing everything; read once down is closed

	mu     sync.Mutex // guards the fields below, and the entries of holds
	closed bool
	holds  map[claim]*hold
}

// keeper is a Keeper of any kind of keys.
type keeper interface {
	Acquire(ctx context.Context, name string, shared, wait bool) (Possession, bool, error)
	Close(ctx context.Context) error
}

// NewClient makes a client of a keeper. shares tells whether the server has shared locks.
func NewClient[K comparable](k *Keeper[K], shares bool) *Client {
	c := &Client{keeper: k, shares: shares, down: make(chan struct{}), stuck: make(chan struct{}),
		holds: map[claim]*hold{}}
	c.open, c.closing = context.WithCancel(context.Background())
	c.tidying, c.abort = context.WithCancel(context.Background())
	return c
}

// Lock waits for a name until ctx ends.
func (c *Client) Lock(ctx context.Context, name string, options ...contract.Option) (contract.Handle, error) {
	return c.take(ctx, "lock", name, options, true)
}

// TryLock takes a name without a holder and without waiters.
func (c *Client) TryLock(ctx context.Context, name string, options ...contract.Option) (contract.Handle, error) {
	return c.take(ctx, "trylock", name, options, false)
}

// Do runs fn under the lock. The context of fn ends when ctx does, or the lock.
func (c *Client) Do(
	ctx context.Context, name string, fn func(ctx context.Context, l contract.Handle) error, options ...contract.Option,
) (err error) {
	if fn == nil {
		return failure("do", name, fmt.Errorf("%w: fn is nil", contract.ErrInvalidOption))
	}
	l, err := c.Lock(ctx, name, options...)
	if err != nil {
		return err
	}
	defer func() { err = contract.JoinUnlock(err, l.Unlock(ctx)) }()
	h := l.(*handle).hold
	inner, cancel := contract.UntilEither(h.under(ctx), h.ctx)
	defer cancel(context.Canceled)
	return fn(inner, l)
}

// take is Lock and TryLock. Its error names the operation and the lock.
func (c *Client) take(
	ctx context.Context, op, name string, options []contract.Option, wait bool,
) (contract.Handle, error) {
	l, err := c.tryTake(ctx, name, options, wait)
	if err != nil { // not a nil *handle in an interface
		return nil, failure(op, name, err)
	}
	return l, nil
}

func (c *Client) tryTake(ctx context.Context, name string, options []contract.Option, wait bool) (*handle, error) {
	o, err := contract.Of(name, options)
	switch {
	case err != nil:
		return nil, err
	case ctx == nil:
		return nil, contract.ErrNilContext
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case o.Leasing():
		return nil, fmt.Errorf("%w: Owner, Lease, MinHold, Progress, Permits and Metadata need a lock in a table",
			driver.ErrUnsupported)
	case o.Shared() && !c.shares:
		return nil, fmt.Errorf("%w: the server has no shared named locks", driver.ErrUnsupported)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	defer c.underWay.Done()
	ctx, cancel := contract.WaitAtMost(ctx, o.AtMost)
	defer cancel()
	k := claim{name, c.ownerIn(ctx)}
	for {
		h, is, err := c.enter(k, o.Shared())
		if is == claimed {
			err = c.acquire(ctx, h, o.Shared(), wait)
		}
		switch {
		case err != nil:
			return nil, err
		case is != busy:
			return &handle{client: c, hold: h}, nil
		case !wait:
			return nil, contract.ErrNotAcquired
		}
		// another goroutine of the owner is acquiring the lock, and this one enters it then
		select {
		case <-h.settled:
		case <-ctx.Done():
			return nil, refused(context.Cause(ctx))
		}
	}
}

// begin counts a call, so that Close waits for it, or returns ErrClosed.
func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return contract.ErrClosed
	}
	c.underWay.Add(1)
	return nil
}

// acquire gets a name for the hold that claims it, and settles the hold.
func (c *Client) acquire(ctx context.Context, h *hold, shared, wait bool) error {
	defer close(h.settled)
	within, cancel := contract.UntilClosed(ctx, c.open)
	defer cancel()
	p, got, err := c.keeper.Acquire(within, h.name, shared, wait)
	if err = c.outcome(ctx, got, wait, err); err != nil {
		c.forget(h)
		return err
	}
	own, end := context.WithCancelCause(h.under(context.WithoutCancel(ctx)))
	stop := context.AfterFunc(p.Kept(), func() {
		end(fmt.Errorf("dblock: %q: %w", h.name, contract.Lost(context.Cause(p.Kept()))))
		c.forget(h)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	h.possession, h.ctx, h.shared = p, own, shared
	h.end = func(cause error) { stop(); end(cause) }
	if c.closed { // Close releases the keeper's connection, and this lock with it
		h.end(contract.ErrClosed)
		return contract.ErrClosed
	}
	h.entries = 1
	return nil
}

// outcome returns the reason why a request of the keeper failed, or nil.
func (c *Client) outcome(ctx context.Context, got, wait bool, err error) error {
	switch {
	case err == nil && got:
		return nil
	case err == nil:
		return contract.ErrNotAcquired
	case c.open.Err() != nil:
		return contract.ErrClosed
	case ctx.Err() == nil:
		return err
	case errors.Is(err, driver.ErrUnavailable): // it saw no holder
		return driver.Join(err, context.Cause(ctx))
	case !wait: // with a holder, the error would tell so
		return fmt.Errorf("%w: no answer before the context ended: %w", driver.ErrUnavailable,
			driver.Join(context.Cause(ctx), err))
	}
	return refused(driver.Join(context.Cause(ctx), err))
}

// refused returns ErrNotAcquired with a cause.
func refused(cause error) error { return fmt.Errorf("%w: %w", contract.ErrNotAcquired, cause) }

// failure names the operation and the lock in an error.
func failure(op, name string, err error) error { return fmt.Errorf("dblock: %s %q: %w", op, name, err) }

// InTx takes names until a transaction ends, in their order. lock takes one of them.
func (c *Client) InTx(
	ctx context.Context, op string, names []string, wait bool,
	lock func(ctx context.Context, name string, wait bool) (bool, error),
) error {
	failed := strings.Join(names, ", ")
	names, err := contract.NamesOfTx(names)
	switch {
	case err != nil:
	case ctx == nil:
		err = contract.ErrNilContext
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	default:
		err = c.begin()
	}
	if err != nil {
		return failure(op, failed, err)
	}
	defer c.underWay.Done()
	within, cancel := contract.UntilClosed(ctx, c.open)
	defer cancel()
	for _, name := range names {
		got, err := lock(within, name, wait)
		if err = c.outcome(ctx, got, wait, err); err != nil {
			return failure(op, name, err)
		}
	}
	return nil
}

// Close releases all locks and ends everything. When it returns nil, nothing of the client runs any
// more. It returns after contract.CloseTimeout and contract.StuckTimeout at the latest.
func (c *Client) Close(ctx context.Context) error {
	if ctx == nil {
		return contract.ErrNilContext
	}
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		go c.shutDown()
	}
	c.mu.Unlock()
	select {
	case <-c.down:
	case <-ctx.Done():
		c.abort()
		return fmt.Errorf("dblock: close: %w", context.Cause(ctx))
	case <-c.stuck:
		select {
		case <-c.down:
		default:
			return fmt.Errorf("dblock: close: %w", contract.ErrStuck)
		}
	}
	if c.failure != nil {
		return fmt.Errorf("dblock: close: %w", c.failure)
	}
	return nil
}

// shutDown does the work that Close waits for. No call begins any more.
func (c *Client) shutDown() {
	defer close(c.down)
	defer c.abort()
	defer time.AfterFunc(contract.CloseTimeout, c.abort).Stop()
	defer time.AfterFunc(contract.CloseTimeout+contract.StuckTimeout, func() { close(c.stuck) }).Stop()
	c.closing()
	c.mu.Lock()
	var held []*hold
	for k, h := range c.holds {
		if h.entries > 0 {
			held = append(held, h)
			delete(c.holds, k)
			h.end(contract.ErrClosed)
		}
	}
	c.mu.Unlock()
	failures := make([]error, len(held))
	var all sync.WaitGroup
	for i, h := range held {
		all.Go(func() {
			if err := h.possession.Release(c.tidying); err != nil && !errors.Is(err, driver.ErrNotHeld) {
				failures[i] = fmt.Errorf("unlocking %q: %w", h.name, err)
			}
		})
	}
	all.Wait()
	c.underWay.Wait()
	ctx, cancel := contract.ToUnlock(c.tidying, c)
	defer cancel()
	c.failure = driver.Join(append(failures, c.keeper.Close(ctx))...)
}
