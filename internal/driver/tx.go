package driver

import (
	"context"

	"github.com/dblock-go/dblock/internal/protocol"
)

// Tx is the part of an engine that works inside one transaction of the caller's. It never ends
// that transaction. Where the engine has savepoints, its own failures never leave the transaction
// aborted. It never retries: ErrRetry means that the caller has to run the whole transaction again.
// Before Guard, Release or Lock locks or writes anything, it proves that the transaction is still
// open in the server: ErrTxDone. An error that ends the transaction is ErrRolledBack, too.
type Tx interface {
	// Exclusive reports whether a transaction that has written keeps all other writers out of the
	// database. Then the caller's transaction may be in the way of a Detach, and the client does
	// not wait for one: Guard gets the cohort's token, and Release detaches.
	Exclusive() bool

	// MakeGuard prepares Guard for a lock that is held. It is called once for each hold, even if
	// its token and units change afterwards, and before the transaction has a snapshot. It writes
	// the row that Guard locks, in a transaction of its own that locks the name's row and finds the
	// lock held. Where the engine needs no such row MakeGuard does nothing. ErrNotHeld. ErrBusy
	// where an application's open transaction has locked the name's row.
	MakeGuard(ctx context.Context, h protocol.Held, onSideConn OnSideConn) error

	// Guard returns ErrNotHeld unless the lock is held. If it is held, no takeover of it can commit
	// before the transaction ends: Guard share-locks the row of MakeGuard, and every takeover of
	// this hold locks that row without waiting, and writes it. ErrRetry where the transaction has a
	// snapshot that may be older than the lock or its guard, and so may not show a lock that is
	// held; where the guard's row is missing; and for two seconds after a takeover by Break or
	// Reenter has met a guarded transaction.
	Guard(ctx context.Context, h protocol.Held, onSideConn OnSideConn) error

	// Release releases the lock if the transaction commits. Where the engine cannot grant the lock
	// inside the caller's transaction, it leaves the name free and the queue as it was, for
	// TakeOver. Where d has a token, the lock is a cohort's, and the member is detached first, in
	// the same transaction: only an Exclusive engine gets such a d. Release seizes the guard of the
	// hold, without waiting. The transaction itself may guard the hold; if another transaction
	// does, the error is ErrGuarded. ErrNotHeld where the lock is not held, and ErrRetry as Guard,
	// also where the transaction has a snapshot that may be older than the guard.
	Release(ctx context.Context, h protocol.Held, d protocol.Detachment, onSideConn OnSideConn) error

	// Database identifies the database of the transaction, as Schema.Database does. The client asks
	// after a failure that another database would explain.
	Database(ctx context.Context) (string, error)

	// Lock locks the name's row until the transaction ends, unless the name has a holder or a
	// waiter. In that case it returns the state and false, and the transaction has not locked the
	// row. A holder that it may pass does not count. It waits for other transactions only if wait
	// is true, and otherwise returns false with no holder. Where it has locked the row,
	// State.Database identifies the database of the transaction.
	Lock(ctx context.Context, name string, may Pass, wait bool, onSideConn OnSideConn) (State, bool, error)
}

// Pass reports whether a transaction may pass the lease that holds a name. The client decides. The
// engine passes the facts: the lease's attempt, the length of the queue behind it, and an identity
// of the transaction (a value that compares equal for the same transaction only, including its
// savepoints). Within one Lock, a lease that may be passed stays so: after a wait for the row it
// may be too late to turn back.
type Pass func(attempt string, waiters int, tx any) bool

// OnSideConn runs do on a connection of the engine's own (Sessions.OnSideConn), for two fifths of
// the session's TTL at most. It is not the heartbeats' connection: a statement of do may wait for a
// row.
type OnSideConn func(ctx context.Context, do func(ctx context.Context, up Upkeep) error) error
