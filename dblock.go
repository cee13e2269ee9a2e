package dblock

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/reaper"
)

// Client takes locks in one database. It is safe for concurrent use; a process needs one. TX is the
// type of the application's own transactions, as the engine has it.
//
// From its first lock on, a client is a session in the database that a heartbeat keeps alive, and
// runs a reaper. It never closes the application's pool, and uses it for a moment at a time: a lock
// that is held or waited for needs no connection of it.
type Client[TX any] struct {
	inner
	transactions func(tx TX) client.Tx // what the engine does in the application's transactions; nil: nothing
}

// inner is not exported, so that its method is not on the public page.
type inner = client.Inner

// Engine is a database with transactions of type TX (pgx.Tx, *sql.Tx): what New of package
// postgres, mysql or sqlite returns. The zero value is of no database, and New refuses it.
type Engine[TX any] = driver.Engine[TX]

// New makes a client of an engine: dblock.New(postgres.New(pool)). It does no I/O and starts
// nothing: the first lock does. ErrConfig where the engine cannot work as it was set up,
// ErrInvalidOption where an option is out of range.
func New[TX any](engine Engine[TX], options ...Option) (*Client[TX], error) {
	if engine.Backend == nil {
		return nil, fmt.Errorf("dblock: %w: the engine is nil", ErrConfig)
	}
	if err := engine.Validate(); err != nil {
		return nil, fmt.Errorf("dblock: %w", err)
	}
	config, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	if err := reaper.Check(config.Reaper...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidOption, err)
	}
	c := &Client[TX]{inner: client.InnerOf(client.New(engine.Backend, config))}
	if engine.Transactions != nil {
		c.transactions = func(tx TX) client.Tx { return engineTx[TX]{engine.Transactions, tx} }
	}
	return c, nil
}

// Lock waits until it holds the lock, first come first served over all processes, or until ctx
// ends. ctx bounds the waiting only, not the lock. A context under which this owner already holds
// the name enters it again at once. If it then asks for a Lease, Metadata or MinHold that the lock
// is not held with, it gets ErrInvalidOption; what it does not ask for stays as it is.
//
// ErrNotAcquired, with the context's error and with the holder of the lock, when ctx ends: the
// place in the queue is given up, and so is a lock that was granted in the same moment. Lock
// returns at once: a client gives them up in the background, within a moment where the database
// answers, so that others may still see the place for that long. ErrUnavailable, with the context's
// error, when ctx ends before a holder or a queue was seen: the pool had no free connection, say.
// The context's error alone where ctx had ended already. ErrInvalidName, ErrInvalidOption before
// any I/O. ErrSchema, ErrClosed. ErrUnavailable or ErrReadOnly when the database was away, or took
// no writes, at the first attempt of this client, or for longer than one TTL; while it waits, Lock
// survives restarts and failovers. So it is when the database or this machine is too slow for a
// Lease: when grants come after most of it is over. ErrDeadlock when waiters wait for each other in
// a cycle, and this is the one that began to wait last. ErrCapacity as Permits says.
func (c *Client[TX]) Lock(ctx context.Context, name string, options ...LockOption) (*Lock, error) {
	return c.acquire(ctx, "lock", name, options, true)
}

// TryLock takes the lock if nobody holds it and nobody waits for it. If not, it returns
// ErrNotAcquired, with its holder, without waiting. It waits for nothing but transactions that have
// locked the name's row: dblock's own are short. Where an application's open transaction has the
// row (LockTx, UnlockTx), it returns ErrNotAcquired after about half a second, without a holder.
// Otherwise as Lock: a database that is away is tried for up to one TTL, or until ctx ends. Give a
// ctx with a deadline where that is too long.
func (c *Client[TX]) TryLock(ctx context.Context, name string, options ...LockOption) (*Lock, error) {
	return c.acquire(ctx, "trylock", name, options, false)
}

// Do runs fn under the lock, and unlocks, also when fn panics. The context of fn ends when ctx
// does, and with cause ErrLost when the lock is lost; under it the same name locks again at once.
// Do returns what fn returns, joined with ErrLost if the lock was lost before fn returned.
// ErrInvalidOption without fn.
func (c *Client[TX]) Do(ctx context.Context, name string, fn func(ctx context.Context, l *Lock) error, options ...LockOption) (err error) {
	if fn == nil {
		return &LockError{"do", name, fmt.Errorf("%w: fn is nil", ErrInvalidOption)}
	}
	l, err := c.Lock(ctx, name, options...)
	if err != nil {
		return err
	}
	defer func() { err = contract.JoinUnlock(err, l.Unlock(ctx)) }()
	return l.core().Run(ctx, func(ctx context.Context) error { return fn(ctx, l) })
}

func (c *Client[TX]) acquire(ctx context.Context, op, name string, options []LockOption, wait bool) (*Lock, error) {
	want, err := wantOf(name, options)
	if err != nil {
		return nil, &LockError{op, name, err}
	}
	l, err := c.Core().Acquire(ctx, want, wait)
	if err != nil {
		return nil, &LockError{op, name, err}
	}
	return (*Lock)(l), nil
}

// TTL is how long the client's locks outlive its last heartbeat, as WithTTL says.
func (c *Client[TX]) TTL() time.Duration { return c.Core().TTL() }

// CheckSchema returns ErrSchema, saying what to run, unless the database has tables that this build
// can work with: those of its own version, or of a later one that says so. ErrUnavailable where
// nothing is answered within a TTL.
func (c *Client[TX]) CheckSchema(ctx context.Context) error {
	if err := c.Core().CheckSchema(ctx); err != nil {
		return fmt.Errorf("dblock: check schema: %w", err)
	}
	return nil
}

// Close releases every lock that the client still holds, ends their contexts with cause ErrClosed,
// calls off all waiters (ErrClosed), and ends the session. It waits up to a second for statements
// under way, and up to five for transactions that hold rows it needs: what is behind those expires
// with the session. When it returns nil, nothing of the client runs any more. If ctx ends before
// the database has answered, Close says so, stops trying, and what is left expires with the
// session. With a ctx that has already ended, such as that of a program which a signal ends, it
// tries for a few seconds, as Unlock does.
//
// Whatever ctx allows, Close stops trying after eight seconds and returns within ten: also where
// the application has all connections of the pool or has closed it, where a table is locked, and
// where a job, a callback or a driver does not end with its context. No heartbeat is sent then, so
// that what is left expires within a TTL. Close is idempotent.
func (c *Client[TX]) Close(ctx context.Context) error {
	if err := c.Core().Close(ctx); err != nil {
		return fmt.Errorf("dblock: close: %w", err)
	}
	return nil
}
