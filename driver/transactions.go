package driver

import "context"

// Transactions is what an engine does inside a transaction of the caller's. It never ends that
// transaction, never leaves it aborted by its own doing where the engine has savepoints, and never
// retries what the caller must repeat: errors of the kind ErrRetry mean that the whole transaction
// has to be run again.
type Transactions[TX any] interface {
	// MakeGuard prepares Guard for a lock that is held: once for each hold, however its token and
	// units change afterwards, and before tx has a snapshot. It writes the row that Guard locks, in
	// a transaction of its own, which locks the name's row and finds the lock held; where the
	// engine needs no such row it does nothing. ErrNotHeld. ErrBusy where an open transaction of
	// the application has locked the name's row.
	MakeGuard(ctx context.Context, h Held, aside Aside) error

	// Guard returns ErrNotHeld unless the lock is held; if it is, no takeover of it can commit
	// before tx ends. It share-locks the row of MakeGuard, which every takeover of this hold locks
	// without waiting, and writes. ErrRetry where tx has a snapshot that may be older than the lock
	// or its guard: what it does not show may be held; where the guard's row is missing; and for
	// two seconds after a takeover by Break or Reenter has met a guarded transaction.
	Guard(ctx context.Context, tx TX, h Held, aside Aside) error

	// ReleaseTx releases the lock with tx, if that commits. Where the engine cannot name the next
	// holder inside the caller's transaction, the name is left free with its queue as it was, for
	// Reclaim. ErrNotHeld as Release, and ErrRetry as Guard.
	ReleaseTx(ctx context.Context, tx TX, h Held, aside Aside) error

	// LockTx locks the name's row until tx ends, unless somebody holds the name or waits for it:
	// then it reports that state, and false, and tx has not locked the row. A holder that it may
	// pass counts as nobody. It waits for other transactions only where wait is true, and reports
	// false with no holder where it may not.
	LockTx(ctx context.Context, tx TX, name string, may Pass, wait bool, aside Aside) (State, bool, error)
}

// Pass reports whether a transaction may pass the lease that holds a name. The client decides; the
// engine says what it sees: the lease's attempt, how many places the queue behind it has, and what
// identifies the transaction (a value that compares equal for the same transaction only, also for
// its savepoints). Within one LockTx, a lease that may be passed stays so: where the row was waited
// for, it may be too late to turn back.
type Pass func(attempt string, waiters int, tx any) bool

// Aside runs do on a connection of the engine's own (Backend.Beside), for two fifths of the
// session's TTL at most. It is not the connection that beats: a statement of do may wait for a row.
type Aside func(ctx context.Context, do func(ctx context.Context, up Upkeep) error) error
