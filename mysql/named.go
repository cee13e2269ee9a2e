package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/named"
	"github.com/dblock-go/dblock/internal/sessionlock"
)

// Named keeps locks in the server's named locks, GET_LOCK: no tables and no migrations, exclusive,
// first come first served over all clients. There are no tokens, no shared locks and no locks
// inside transactions: New, on tables, has these. A lock lives exactly as long as the one
// connection that holds it. When that connection ends, all locks of the client are lost at once,
// and the client notices within a second.
//
// The pool remains the application's. A client keeps one of its connections for all locks that it
// holds, and one for each name that it waits for, up to 16 and up to half of the connections that
// the pool allows beside. The pool must allow three. For further names the client polls. A wait
// survives the absence of the server for less than the client's TTL; the waiter then queues again,
// at the end.
//
// A process that is suspended while it holds locks keeps them until it resumes or its connection
// ends. Named locks belong to the whole server, not to a database: see NamedKey. docs/own-locks.md
// describes the effects of a silent network and of readTimeout, and the other events that end a
// lock.
//
// Named does no I/O: the first lock connects. Named returns ErrConfig without a pool or with one
// that is too small, and ErrInvalidOption if an option is out of range. The first lock returns
// ErrConfig on a cluster whose nodes have separate named locks, and behind a proxy that spreads
// statements over connections. It returns ErrReadOnly on a replica.
func Named(db *sql.DB, options ...NamedOption) (*NamedClient, error) {
	config, err := sessionlock.Configured(options)
	var keeper *sessionlock.Keeper[string]
	if err == nil {
		keeper, err = named.Open(db, config)
	}
	if err != nil {
		return nil, fmt.Errorf("dblock: %w", err)
	}
	return &NamedClient{sessionlock.NewClient(keeper, false)}, nil
}

// NamedOption configures a NamedClient.
type NamedOption = sessionlock.Option

// NamedTTL sets the time for which a wait survives the absence of the server: 1 s to 24 h. Default:
// 15 s.
func NamedTTL(ttl time.Duration) NamedOption {
	return sessionlock.Set(func(c *sessionlock.Config) { c.TTL = ttl })
}

// NamedLogger sets the logger for connections that were lost with their locks. Nothing waits for
// it, as with dblock.WithLogger. Default: slog.Default.
func NamedLogger(log *slog.Logger) NamedOption {
	return sessionlock.Set(func(c *sessionlock.Config) { c.Log = log })
}

// NamedClient takes named locks. It is safe for concurrent use, and a dblock.Locker. errors.Is
// finds its errors under the names of package dblock. They do not name the holder of a lock: the
// server does not tell the client.
type NamedClient struct{ client *sessionlock.Client }

// Lock waits until it holds the lock, first come first served over all clients. If ctx ends first,
// it returns ErrNotAcquired, or ErrUnavailable if it saw no holder, with the context's error. A
// context under which the name is already held enters it again at once. dblock.WaitAtMost is its
// option. Shared and the options of locks in tables are ErrUnsupported.
func (c *NamedClient) Lock(ctx context.Context, name string, options ...contract.Option) (contract.Handle, error) {
	return c.client.Lock(ctx, name, options...)
}

// TryLock takes the lock if it has no holder and no waiters. Otherwise it returns ErrNotAcquired.
func (c *NamedClient) TryLock(ctx context.Context, name string, options ...contract.Option) (contract.Handle, error) {
	return c.client.TryLock(ctx, name, options...)
}

// Do runs fn under the lock, and unlocks, also if fn panics. The context of fn ends when ctx does,
// and with cause ErrLost when the lock is lost. Do returns the error of fn, joined with ErrLost if
// the lock was lost before fn returned.
func (c *NamedClient) Do(
	ctx context.Context, name string, fn func(ctx context.Context, l contract.Handle) error, options ...contract.Option,
) error {
	return c.client.Do(ctx, name, fn, options...)
}

// Close releases every lock that the client still holds, ends their contexts with cause ErrClosed,
// cancels all waiters (ErrClosed), and closes the client's connections. It returns within ten
// seconds, whatever is stuck. When it returns nil, nothing of the client runs any more. It is
// idempotent.
func (c *NamedClient) Close(ctx context.Context) error { return c.client.Close(ctx) }

// NamedKey returns the key that GET_LOCK, and IS_USED_LOCK in a console, use for a name. It will
// not change: "dblock/" and the name if that has at most 56 bytes of a to z, 0 to 9 and . _ : / -,
// otherwise "dblock=" and the SHA-256 of the name in lower-case base32 without padding. Other
// letters are hashed because servers differ in which of them are the same: to MySQL A is a, to
// MariaDB it is not. The first waiter holds the key with a "+" behind it: the queue.
func NamedKey(name string) string { return named.Key(name) }
