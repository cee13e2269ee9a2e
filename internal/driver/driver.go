// Package driver is the interface between dblock's client and its database engines, with the values
// that go in and out. The engines import it, the client
// imports it, and neither imports the other.
//
// Every method is one atomic transition of the tables. An engine decides races inside the database,
// by the database's clock. It keeps no state of its own between calls: waiting, retries and giving
// up are the client's part.
//
// # Order of locks
//
// Inside an engine the order is always: row of dblock_locks, row of dblock_guards, row of
// dblock_sessions, row of dblock_heartbeats, rows of dblock_waiters. A transaction that changes the
// holders or the waiters of a name first locks the name's row in dblock_locks, and decides in a
// later statement.
//
// # Guards
//
// An application's transaction that guards a hold share-locks the hold's row in dblock_guards. A
// takeover (Removal ByTime or ByForce, Reenter) takes a lock from a holder that did not release it:
// it locks that row after the name's, without waiting, and writes it. A release by the holder does
// so where the hold was guarded (Removal.Guarded), and ReleaseTx always. The end of a session,
// which takes no lock away, does not.
package driver

import (
	"context"
)

// Engine is a database with callers' transactions of type TX (pgx.Tx, *sql.Tx). An engine's
// constructor returns this type, so that dblock.New can infer TX. It is a struct, because from an
// interface Go infers by methods alone.
type Engine[TX any] struct {
	Backend
	Transactions Transactions[TX]
}

// Backend is a database that holds locks. All methods are safe for concurrent use. They return
// errors that match one of the kinds in this package with errors.Is, the context's own error, or
// the vendor's error as it came.
//
// The application's transactions may lock a name's row for any time (LockTx, UnlockTx). No method
// keeps a connection to wait for such a transaction: a method that needs that row returns ErrBusy
// after a moment, and has done nothing. On MySQL the single statement of a release without waiters
// has no limit for the wait of its own: its context ends it.
type Backend interface {
	Setup
	Sessions
	Names
	Sweep
	Records
	Jobs
	Inspection
	Quorum
}

// Setup is what is asked before anything is done.
type Setup interface {
	// Validate returns the errors that can be found without I/O: a nil pool, a pool that is too
	// small.
	Validate() error

	// Schema reads which builds can work with the tables.
	Schema(ctx context.Context) (Schema, error)

	// Connections returns how many connections of the application's pool are in use now, and how
	// many it allows; 0: any number. It is called only to explain why nothing was answered.
	Connections() (inUse, most int)

	// DropReadOnly closes those idle connections of the application's pool that are to a server
	// which accepts no writes: a failover has left them there. It is called after ErrReadOnly.
	DropReadOnly(ctx context.Context)
}
