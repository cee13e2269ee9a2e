package driver

import (
	"context"
	"log/slog"
	"time"
)

// Native is a server's own lock functions (advisory locks, named locks): no tables, no sessions, no
// tokens. A lock lives exactly as long as one connection.
type Native[TX any] interface {
	// Validate returns the errors that can be found without I/O: a nil pool, a pool that is too
	// small.
	Validate() error

	// Open makes the locks of one client of an application. It does no I/O: the first Acquire
	// connects, under the name of the application where the server shows such a name. ttl is how
	// long a wait survives without the server, counted from the last time that the wait was in
	// order.
	Open(app string, log *slog.Logger, ttl time.Duration) Keeper[TX]
}

// Keeper has the locks of one client. All methods are safe for concurrent use; every wait ends with
// its context. They return errors that match one of the kinds in this package with errors.Is, the
// context's own error, or the vendor's error as it came.
type Keeper[TX any] interface {
	// Acquire takes a name, exclusive or shared. Goroutines that want the same name get it in the
	// order in which they asked. With wait false it returns false where the name has another holder
	// or waiter. ErrConfig where the connection cannot keep locks (a pooler in between, a cluster),
	// ErrReadOnly on a standby, ErrUnsupported where there are no shared locks.
	Acquire(ctx context.Context, name string, shared, wait bool) (Possession, bool, error)

	// LockTx takes a name until the caller's transaction ends. With wait false it returns false
	// where the name has another holder. After an error the transaction is as it was before, where
	// the engine allows.
	LockTx(ctx context.Context, tx TX, name string, shared, wait bool) (bool, error)

	// Close releases the connection, and with it every lock that is still held. When it returns, no
	// goroutine of the keeper runs any more. It is idempotent.
	Close(ctx context.Context) error
}

// Possession is one name that was acquired.
type Possession interface {
	// Lost is closed when the connection is gone, and with it the lock. Cause then returns the
	// reason.
	Lost() <-chan struct{}
	Cause() error

	// Release releases the name, once. A second call, after an error, waits for the same answer.
	// ErrNotHeld where the lock was lost.
	Release(ctx context.Context) error
}
