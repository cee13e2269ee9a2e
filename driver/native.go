package driver

import (
	"context"
	"log/slog"
	"time"
)

// Native is a server's own lock functions (advisory locks, named locks): no tables, no sessions, no
// tokens. What is held lives exactly as long as one connection does.
type Native[TX any] interface {
	// Validate refuses what can be refused without I/O: a nil pool, a pool too small.
	Validate() error

	// Open makes the locks of one client. It does no I/O: the first Acquire connects. ttl is for
	// how long a wait survives without the server, from the last time that it was in order.
	Open(log *slog.Logger, ttl time.Duration) Keeper[TX]
}

// Keeper has the locks of one client. All methods are safe for concurrent use; every wait ends with
// its context. They return errors that match one of the kinds in this package with errors.Is, the
// context's own error, or the vendor's error as it came.
type Keeper[TX any] interface {
	// Acquire takes a name, exclusive or shared. Goroutines that want the same name get it in the
	// order in which they asked. With wait false it reports false where another has the name or
	// waits for it. ErrConfig where the connection is none to keep locks on (a pooler in between, a
	// cluster), ErrReadOnly on a standby, ErrUnsupported where there is no sharing.
	Acquire(ctx context.Context, name string, shared, wait bool) (Possession, bool, error)

	// LockTx takes a name until the caller's transaction ends. It reports false where another has
	// the name, which it can only where wait is false. After an error the transaction is as it was
	// before, where the engine allows.
	LockTx(ctx context.Context, tx TX, name string, shared, wait bool) (bool, error)

	// Close gives back the connection, and with it whatever is still held. When it returns nothing
	// of the keeper runs any more. Idempotent.
	Close(ctx context.Context) error
}

// Possession is one name that was acquired.
type Possession interface {
	// Lost is closed when the connection is gone, and with it the lock; Cause then says why.
	Lost() <-chan struct{}
	Cause() error

	// Release gives the name back, once: who calls again, after an error, waits for the same
	// answer. ErrNotHeld where it was lost.
	Release(ctx context.Context) error
}
