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
// first come first served over all clients. There are no tokens. A lock lives exactly as long as
// the one connection that holds it: a network that drops the connection, a failover or a KILL lose
// all locks of the client at once. The client notices within a second of the end of its connection.
// No named lock is shared, and none ends with a transaction: New, on tables, has both.
//
// The pool stays the application's. A client keeps one of its connections for all locks that it
// holds, and one for each name that it waits for, up to 16 and up to half of what the pool allows
// beside. For further names it polls. The pool must allow three. A wait survives the end of its
// connection and a server that is away for less than the client's TTL; it then queues again, at the
// end.
//
// A process that is stopped while it waits (SIGSTOP, a paused container) holds up the other waiters
// of the name for 10 s when its turn comes: then the server ends its connection, with wait_timeout.
// A process that is stopped while it holds locks keeps them until it goes on or its connection
// ends.
//
// The client sees the end of the connection by looking at its socket, four times a second, which
// costs the server nothing. Where the driver cannot look (checkConnLiveness=false, a driver wrapped
// around it, a dialer whose connections hide their socket, Windows) a statement asks twice a second
// instead. A connection that goes silent without an end (a cable, a firewall that forgets) is
// noticed by TCP keepalive alone: by the client after some two minutes; by the server, which keeps
// the locks until then, when its system says so (net.ipv4.tcp_keepalive_time on Linux: two hours).
//
// With a readTimeout in the DSN a place in a queue is given up and taken again each time that two
// thirds of it are over, so that clients are served in no strict order. It must be two seconds or
// more.
//
// Some servers are refused with the first lock, before it is taken: a Galera cluster, or a group
// with several primaries, since each node has named locks of its own; a proxy that spreads
// statements over connections, where it shows (ErrConfig); a replica or a server that is read-only
// (ErrReadOnly). A server that becomes read-only while locks are held has been demoted: the locks
// are lost with the client's next statement. They are also lost where a KILL QUERY from outside
// hits that statement.
//
// Named locks are the whole server's, not the database's: applications that share a server exclude
// each other where they use the same names. See NamedKey.
//
// It does no I/O: the first lock connects. ErrConfig without a pool, or with one that is too small,
// ErrInvalidOption where an option is out of range.
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

// NamedTTL sets how long a wait goes on without the server: 1 s to 24 h. Default: 15 s.
func NamedTTL(ttl time.Duration) NamedOption { return func(c *sessionlock.Config) { c.TTL = ttl } }

// NamedLogger sets where the client tells of connections that were lost with their locks. Nothing
// waits for it, as of dblock.WithLogger. Default: slog.Default.
func NamedLogger(log *slog.Logger) NamedOption {
	return func(c *sessionlock.Config) { c.Log = log }
}

// NamedClient takes named locks. It is safe for concurrent use, and a dblock.Locker. Its errors are
// to be found with errors.Is, under the names that package dblock has for them. They do not name
// the holder of a lock: the server does not tell the client.
type NamedClient struct{ client *sessionlock.Client }

// Lock waits until it holds the lock, first come first served over all clients, or until ctx ends:
// ErrNotAcquired, or ErrUnavailable where it saw no holder, with the context's error. A context
// under which the name is already held enters it again at once. dblock.WaitAtMost is its option.
// Shared and the options of locks in tables are ErrUnsupported.
func (c *NamedClient) Lock(ctx context.Context, name string, options ...contract.Option) (contract.Handle, error) {
	return c.client.Lock(ctx, name, options...)
}

// TryLock takes the lock if nobody holds it and nobody waits for it. If not, it returns
// ErrNotAcquired.
func (c *NamedClient) TryLock(ctx context.Context, name string, options ...contract.Option) (contract.Handle, error) {
	return c.client.TryLock(ctx, name, options...)
}

// Do runs fn under the lock, and unlocks, also when fn panics. The context of fn ends when ctx
// does, and with cause ErrLost when the lock is lost. Do returns what fn returns, joined with
// ErrLost if the lock was lost before fn returned.
func (c *NamedClient) Do(ctx context.Context, name string, fn func(ctx context.Context, l contract.Handle) error, options ...contract.Option) error {
	return c.client.Do(ctx, name, fn, options...)
}

// Close releases every lock that the client still holds, ends their contexts with cause ErrClosed,
// calls off all waiters (ErrClosed), and closes the client's connections. When it returns nil,
// nothing of the client runs any more. It returns within ten seconds, whatever is stuck. It is
// idempotent.
func (c *NamedClient) Close(ctx context.Context) error { return c.client.Close(ctx) }

// NamedKey is what a name is to GET_LOCK, and to IS_USED_LOCK in a console, for ever: "dblock/" and
// the name where that is at most 56 bytes of a to z, 0 to 9 and . _ : / -, and otherwise "dblock="
// and the SHA-256 of the name in lower-case base32 without padding. Other letters are hashed
// because servers differ in which of them are the same: to MySQL A is a, to MariaDB it is not. The
// first waiter holds the key with a "+" behind it: the queue.
func NamedKey(name string) string { return named.Key(name) }
