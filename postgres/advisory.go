package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/dblock-go/dblock/internal/advisory"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/sessionlock"
)

// Advisory keeps locks in PostgreSQL's advisory locks: no tables and no migrations, shared and
// exclusive, first come first served over all clients. There are no tokens. A lock lives exactly as
// long as the one connection that holds it. When that connection ends, all locks of the client are
// lost at once, and the client notices within a second.
//
// The pool remains the application's. Beside the pool, outside its budget, a client opens one
// connection for all locks that it holds, and one for each name that it waits for, up to 16. For
// further names it polls. A wait survives the absence of the server for less than the client's TTL;
// the waiter then queues again, at the end.
//
// A waiter has a snapshot, so CREATE INDEX CONCURRENTLY never ends under a lock for which another
// client waits: use New, or TryLock (docs/own-locks.md).
//
// A process that is suspended while it holds locks keeps them until it resumes or its connection
// ends. Advisory locks are per database. Two names with the same key are one lock: see AdvisoryKey.
// docs/own-locks.md describes keepalives for silent networks, and the other events that end a lock.
//
// Advisory does no I/O: the first lock connects. Advisory returns ErrConfig without a pool, and
// ErrInvalidOption if an option is out of range. The first lock returns ErrConfig through a pooler
// that lends connections by the transaction (LockTx does not), and ErrReadOnly on a standby.
func Advisory(pool *pgxpool.Pool, options ...AdvisoryOption) (*AdvisoryClient, error) {
	config, err := sessionlock.Configured(options)
	var client *advisory.Client
	if err == nil {
		client, err = advisory.New(pool, config)
	}
	if err != nil {
		return nil, fmt.Errorf("dblock: %w", err)
	}
	return &AdvisoryClient{client}, nil
}

// AdvisoryOption configures an AdvisoryClient.
type AdvisoryOption = sessionlock.Option

// AdvisoryTTL sets the time for which a wait survives the absence of the server: 1 s to 24 h.
// Default: 15 s.
func AdvisoryTTL(ttl time.Duration) AdvisoryOption {
	return sessionlock.Set(func(c *sessionlock.Config) { c.TTL = ttl })
}

// AdvisoryApp sets the name of the application: pg_stat_activity shows the client's connections as
// dblock/<app>. Default: the program's file name.
func AdvisoryApp(app string) AdvisoryOption {
	return sessionlock.Set(func(c *sessionlock.Config) { c.App = app })
}

// AdvisoryLogger sets the logger for connections that were lost with their locks. Nothing waits for
// it, as with dblock.WithLogger. Default: slog.Default.
func AdvisoryLogger(log *slog.Logger) AdvisoryOption {
	return sessionlock.Set(func(c *sessionlock.Config) { c.Log = log })
}

// AdvisoryClient takes advisory locks. It is safe for concurrent use, and a dblock.Locker.
// errors.Is finds its errors under the names of package dblock. They do not name the holder of a
// lock: the server does not tell the client.
type AdvisoryClient struct{ client *advisory.Client }

// Lock waits until it holds the lock, first come first served over all clients. If ctx ends first,
// it returns ErrNotAcquired, or ErrUnavailable if it saw no holder, with the context's error. A
// context under which the name is already held enters it again at once. dblock.Shared and
// WaitAtMost are its options: entering a share again for the whole name is ErrDeadlock. The options
// of locks in tables are ErrUnsupported.
func (c *AdvisoryClient) Lock(ctx context.Context, name string, options ...contract.Option) (contract.Handle, error) {
	return c.client.Lock(ctx, name, options...)
}

// TryLock takes the lock if it has no holder and no waiters. Otherwise it returns ErrNotAcquired.
func (c *AdvisoryClient) TryLock(
	ctx context.Context, name string, options ...contract.Option,
) (contract.Handle, error) {
	return c.client.TryLock(ctx, name, options...)
}

// Do runs fn under the lock, and unlocks, also if fn panics. The context of fn ends when ctx does,
// and with cause ErrLost when the lock is lost. Do returns the error of fn, joined with ErrLost if
// the lock was lost before fn returned.
func (c *AdvisoryClient) Do(
	ctx context.Context, name string, fn func(ctx context.Context, l contract.Handle) error, options ...contract.Option,
) error {
	return c.client.Do(ctx, name, fn, options...)
}

// LockTx takes the lock inside a transaction, on its connection, and holds it until the transaction
// ends: there is nothing to unlock. It waits in the same queue as Lock, also for locks of this
// client. When ctx ends, or the application's lock_timeout or statement_timeout passes, the
// transaction continues unchanged. LockTx locks several names in the order of their bytes. Without
// a name it returns ErrInvalidOption.
//
// At REPEATABLE READ and SERIALIZABLE, a transaction whose first statement is LockTx sees the
// database as it was before the wait: lock at READ COMMITTED, or expect a serialization failure.
func (c *AdvisoryClient) LockTx(ctx context.Context, tx pgx.Tx, names ...string) error {
	return c.client.LockTx(ctx, tx, names...)
}

// LockSharedTx is LockTx for a reader, as with dblock.Shared.
func (c *AdvisoryClient) LockSharedTx(ctx context.Context, tx pgx.Tx, names ...string) error {
	return c.client.LockSharedTx(ctx, tx, names...)
}

// TryLockTx is LockTx without waiting: it returns ErrNotAcquired if another client has the lock or
// waits for it.
func (c *AdvisoryClient) TryLockTx(ctx context.Context, tx pgx.Tx, names ...string) error {
	return c.client.TryLockTx(ctx, tx, names...)
}

// Close releases every lock that the client still holds, ends their contexts with cause ErrClosed,
// cancels all waiters (ErrClosed), and closes the client's connections. It returns within ten
// seconds, whatever is stuck. When it returns nil, nothing of the client runs any more. It is
// idempotent.
func (c *AdvisoryClient) Close(ctx context.Context) error { return c.client.Close(ctx) }

// AdvisoryKey returns the key of a name, the argument of pg_advisory_lock in psql. pg_locks shows
// it as classid (the upper half) and objid (the lower half). The key is the first 8 bytes, most
// significant first, of the SHA-256 of "dblock:" and the name; that will not change. Each name has
// a second key, of "dblock:queue:" and the name, for its queue.
//
// Two names with the same key exclude each other, without further harm. Among n names, two have the
// same key with a probability of n²/2⁶⁵: one in 37 million with a million names.
func AdvisoryKey(name string) int64 { return advisory.Key(name) }

// AdvisoryQueueKey returns the second key of a name. The first waiter holds it while it waits for
// the key of the name. The other waiters wait for the second key.
func AdvisoryQueueKey(name string) int64 { return advisory.QueueKey(name) }
