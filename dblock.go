package dblock

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/engines"
	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
	"github.com/dblock-go/dblock/reaper"
)

// Client takes locks in one database. It is safe for concurrent use; a process needs one. TX is the
// type of the application's own transactions, as the engine has it.
//
// From its first lock on, a client is a session in the database, which a heartbeat keeps alive, and
// runs a reaper. It never closes the application's pool, and uses the pool for moments only: a lock
// that is held or waited for needs no connection of it.
//
// On a nil *Client, and on one that New did not return, the methods return ErrInvalidOption, or a
// zero value.
type Client[TX any] struct {
	inner
	in func(tx TX) driver.Tx // nil: the engine has no locks inside transactions
}

type inner = inside.Inside[*client.Client]

// core returns the client inside, or an error if New did not return this one.
func (c *Client[TX]) core() (*client.Client, error) {
	if c != nil {
		if core := inside.Of(c.inner); core != nil {
			return core, nil
		}
	}
	return nil, client.ErrNone
}

// Engine is a database with transactions of type TX (pgx.Tx, *sql.Tx): New of package postgres,
// mysql or sqlite returns it. It is opaque: New and package reaper take it. The zero value has no
// database, and New refuses it.
type Engine[TX any] = engines.Engine[TX]

// New makes a client of an engine: dblock.New(postgres.New(pool)). It does no I/O and starts
// nothing: the first lock does. ErrConfig if the engine cannot work as it was set up.
// ErrInvalidOption if an option is out of range.
func New[TX any](engine Engine[TX], options ...Option) (*Client[TX], error) {
	of := inside.Of(engine)
	if of.Backend == nil {
		return nil, fmt.Errorf("dblock: %w: the engine is nil", ErrConfig)
	}
	if err := of.Validate(); err != nil {
		return nil, fmt.Errorf("dblock: %w", err)
	}
	config, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	if err := reaper.Check(config.Reaper...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidOption, err)
	}
	c := inside.Make[Client[TX]](client.New(of.Backend, config))
	c.in = of.In
	return c, nil
}

// Lock waits until it holds the lock, first come first served over all processes, or until ctx
// ends. ctx bounds the wait only, not the lock. Under a context whose owner already holds the name,
// Lock enters it again at once. ErrInvalidOption if it then asks for another Lease, Metadata or
// MinHold than the lock is held with.
//
// ErrNotAcquired, with the context's error and the holder, when ctx ends. Lock returns at once, and
// the client gives up the place in the queue, or a lock that was granted in the same moment, in the
// background: others may see it for a moment. ErrUnavailable, with the context's error, if ctx ends
// before a holder or a queue was seen, because the pool had no free connection, say. The context's
// error alone if ctx had ended before the call.
//
// A caller that holds the name and does not use its Context waits for itself, until ctx ends. The
// error then says that this client has the lock (NotAcquiredError.Own). If ctx has no deadline, the
// client logs such a wait once, after a TTL. Inside a transaction that has locked the name by
// LockTx, Lock waits for that transaction; error and log say so.
//
// ErrInvalidName and ErrInvalidOption before any I/O. ErrSchema, ErrClosed. ErrUnavailable or
// ErrReadOnly if the database is away, or takes no writes, at the first attempt of this client, or
// for longer than one TTL. While it waits, Lock survives restarts and failovers. ErrUnavailable
// also if grants come after most of a Lease has passed. ErrDeadlock if waiters wait for each other
// in a cycle, and this one began to wait last. ErrCapacity as Permits says.
func (c *Client[TX]) Lock(ctx context.Context, name string, options ...LockOption) (*Lock, error) {
	return c.acquire(ctx, "lock", name, options, true)
}

// TryLock takes the lock if it has no holder and no waiters. Otherwise it returns ErrNotAcquired,
// with the holder, without waiting. It waits only for transactions that have locked the name's row.
// Transactions of dblock are short. Half a second after TryLock first found the row locked, its
// last try begins, and ErrNotAcquired follows, without a holder. The error is ErrBusy, too, if an
// open transaction of the application's has had the row all the time (LockTx, UnlockTx; on SQLite
// any that writes). Otherwise others have had the row in turn, and the text says so.
//
// Other errors are those of Lock. While the database is away, TryLock retries for up to one TTL, or
// until ctx ends: give ctx a deadline, or WaitAtMost, where that is too long.
func (c *Client[TX]) TryLock(ctx context.Context, name string, options ...LockOption) (*Lock, error) {
	return c.acquire(ctx, "trylock", name, options, false)
}

// Do runs fn under the lock, and unlocks, also when fn panics. The context of fn ends when ctx
// does, and with cause ErrLost when the lock is lost. Under it the same name is entered again at
// once. Do returns the error of fn, joined with ErrLost if the lock was lost before fn returned.
// ErrInvalidOption without fn.
func (c *Client[TX]) Do(
	ctx context.Context, name string, fn func(ctx context.Context, l *Lock) error, options ...LockOption,
) (err error) {
	if fn == nil {
		return &LockError{"do", name, fmt.Errorf("%w: fn is nil", ErrInvalidOption)}
	}
	l, err := c.Lock(ctx, name, options...)
	if err != nil {
		return err
	}
	defer func() { err = contract.JoinUnlock(err, l.Unlock(ctx)) }()
	return l.core().Do(ctx, func(ctx context.Context) error { return fn(ctx, l) })
}

func (c *Client[TX]) acquire(
	ctx context.Context, op, name string, options []LockOption, wait bool,
) (*Lock, error) {
	core, err := c.core()
	var want *client.Want
	if err == nil {
		want, err = wantOf(name, options)
	}
	var l *client.Lock
	if err == nil {
		l, err = core.Acquire(ctx, want, wait)
	}
	if err != nil {
		return nil, &LockError{op, name, err}
	}
	return inside.Make[Lock](l), nil
}

// TTL returns how long the client's locks outlive its last heartbeat: see WithTTL.
func (c *Client[TX]) TTL() time.Duration {
	core, err := c.core()
	if err != nil {
		return 0
	}
	return core.TTL()
}

// CheckSchema returns ErrSchema, with the command to run, unless this build can work with the
// tables of the database: those of its own version, or of a later one that allows it.
// ErrUnavailable if there is no answer within a TTL.
func (c *Client[TX]) CheckSchema(ctx context.Context) error {
	core, err := c.core()
	if err == nil {
		err = core.CheckSchema(ctx)
	}
	if err != nil {
		return fmt.Errorf("dblock: check schema: %w", err)
	}
	return nil
}

// Close releases every lock that the client holds, ends their contexts with cause ErrClosed,
// cancels all waiters (ErrClosed), and ends the session. It waits up to one second for statements
// in flight, and up to five for transactions that hold rows it needs. Locks that Close cannot
// release expire with the session. When it returns nil, nothing of the client runs any more. If ctx
// ends before the database has answered, Close stops trying and returns an error. With a ctx that
// had ended before, such as that of a program which a signal ends, it tries for a few seconds, as
// Unlock does.
//
// Close stops trying after eight seconds and returns within ten, even if ctx allows more time, the
// application has all connections of the pool or has closed it, a table is locked, or a job, a
// callback or a driver does not end with its context. No heartbeat is sent then, so that remaining
// locks expire within a TTL. Close is idempotent.
func (c *Client[TX]) Close(ctx context.Context) error {
	core, err := c.core()
	if err == nil {
		err = core.Close(ctx)
	}
	if err != nil {
		return fmt.Errorf("dblock: close: %w", err)
	}
	return nil
}
