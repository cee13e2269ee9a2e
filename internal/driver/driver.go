// Package driver is the interface between dblock's client and its database engines, with the values
// that go in and out. Engines and client import this package, and not each other.
//
// Every method is one atomic transition of the tables. An engine decides races inside the database,
// by the database's clock. It keeps no state of its own between calls: the client waits, retries
// and abandons requests.
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
// the same if the hold was guarded (Removal.Guarded), and Tx.Release always. The end of a session
// takes no lock away, and does not lock that row.
package driver

import (
	"context"
)

// Engine is a database with callers' transactions of type TX (pgx.Tx, *sql.Tx): what an
// engines.Engine has inside.
type Engine[TX any] struct {
	Backend
	In func(tx TX) Tx // nil: the engine has no locks inside transactions
}

// Backend is a database that holds locks. All methods are safe for concurrent use. They return
// errors that match one of the kinds in this package with errors.Is, the context's own error, or
// the vendor's error unchanged.
//
// The application's transactions may lock a name's row for any time (LockTx, UnlockTx). No method
// keeps a connection to wait for such a transaction: a method that needs that row returns ErrBusy
// after a moment, and has done nothing. On MySQL one statement, the release of a lock without
// waiters, has no limit of its own for that wait: its context ends it.
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

// Setup has what a client reads of an engine before and between its uses.
type Setup interface {
	// Validate returns the errors that can be found without I/O: a nil pool, a pool that is too
	// small.
	Validate() error

	// HostFolder returns the folder for the files of the processes of this host that use the
	// database; "": the user's. If create is true, it makes the folder. ok is false if no other
	// process can use the database. It is called after Schema.
	HostFolder(create bool) (path string, ok bool)

	// Schema reads which builds can work with the tables.
	Schema(ctx context.Context) (Schema, error)

	// Connections returns the present use of the application's pool. It is called only to explain a
	// missing answer.
	Connections() Pool

	// DropReadOnly closes the pool's idle connections to a server that accepts no writes, as a
	// failover leaves them. It is called after ErrReadOnly.
	DropReadOnly(ctx context.Context)
}
