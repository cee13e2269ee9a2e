// Package driver is the interface between dblock's client and its database engines, with the values
// that go in and out. It imports the standard library only. The engines import it, the client
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
// takeover (Reclaim, Break, Reenter) takes a lock from a holder that did not release it: it locks
// that row after the name's, without waiting, and writes it. Release and Leave are the holder's own
// and never touch it. Neither does the end of a session, which takes no lock away.
package driver

import (
	"context"
	"time"
)

// Engine is a database with callers' transactions of type TX (pgx.Tx, *sql.Tx). It has either locks
// in tables, with Backend and Transactions, or the server's own locks, with Native. An engine's
// constructor returns this type, so that dblock.New can infer TX. It is a struct, because from an
// interface Go infers by methods alone.
type Engine[TX any] struct {
	Backend
	Transactions Transactions[TX]
	Native       Native[TX]
}

// Backend is a database that holds locks. All methods are safe for concurrent use. They return
// errors that match one of the kinds in this package with errors.Is, the context's own error, or
// the vendor's error as it came.
//
// The application's transactions may lock a name's row for any time (LockTx, UnlockTx). No method
// keeps a connection to wait for such a transaction: a method that needs that row returns ErrBusy
// after a moment, and has done nothing. On MySQL the single statements of Take and Release have no
// limit for the wait of their own: their contexts end it.
type Backend interface {
	Records
	Inspection

	// Validate returns the errors that can be found without I/O: a nil pool, a pool that is too
	// small.
	Validate() error

	// Schema reads which builds can work with the tables.
	Schema(ctx context.Context) (Schema, error)

	// Connections returns how many connections of the application's pool are in use now, and how
	// many it allows; 0: any number. It is called only to explain why nothing was answered.
	Connections() (inUse, most int)

	// OpenSession writes the rows of a new session. Its lease ends TTL after the statement ran.
	// ErrBusy where an application's transaction has locked the database.
	OpenSession(ctx context.Context, s Session) error

	// EndSession ends a session after its locks were released. Nothing can be granted to it any
	// more. Its rows are deleted if nothing refers to them. A missing session is no error.
	EndSession(ctx context.Context, session string) error

	// Upkeep reserves the connection for a session's heartbeats, apart from the work of the
	// application. Nothing that can wait for a row runs on it, except the heartbeat, for its own
	// row.
	Upkeep(ctx context.Context) (Upkeep, error)

	// Beat is Upkeep.Heartbeat over the application's pool, for the time without a reserved
	// connection.
	Beat(ctx context.Context, session string, ttl time.Duration) (alive bool, err error)

	// Attend tells the engine that a client with this TTL uses it until leave is called; 0: a user
	// without a session, such as a reaper. It does no I/O. While a client attends, the engine may
	// keep connections of its own open between two uses. The last leave closes them, within about a
	// second. Without Attend everything works, on a new connection for each use.
	Attend(ttl time.Duration) (leave func())

	// Beside runs do on a connection of the engine's own. That is neither Upkeep's nor one that the
	// application's transactions can keep busy. If the connection turns out to be broken, do runs
	// once more on a new one. do must not call Close. ErrUnavailable where the application's pool
	// gives no connection before ctx ends.
	Beside(ctx context.Context, do func(ctx context.Context, up Upkeep) error) error

	// Take takes the lock if it has room for the request, no waiters, and no cool-down (MinHold)
	// that goes on. It is one statement and one commit, after those that make a missing row of the
	// name. It also returns false where the request's capacity is not the name's.
	Take(ctx context.Context, r Request) (Grant, bool, error)

	// Enqueue joins the end of the queue of a name that has holders or waiters, with a ticket from
	// the name's row, which it has locked. Where the name has neither, Enqueue may take the lock
	// instead, or do nothing and return Gone. It also returns Gone where the name has no row. After
	// Gone the caller repeats Take. ErrCapacity where the holders or waiters of the name have
	// another capacity.
	Enqueue(ctx context.Context, r Request) (Grant, Outcome, error)

	// Reenter takes the lock over from its present holder, in any session, if the holder's host and
	// thread are those of the request, and gives it a new token. It returns false where they are
	// not, and for a share. ErrBusy where a transaction that guards the lock is open: then no new
	// one begins for two seconds.
	Reenter(ctx context.Context, r Request) (Grant, bool, error)

	// SetHolds records how many times the holder has entered the lock. ErrNotHeld.
	SetHolds(ctx context.Context, h Held, holds int) error

	// Release releases a lock and grants it to the live waiters in the order of their tickets, each
	// with a token of its own, stopping at the first that does not fit. With contended false it may
	// first try the single statement that suffices without waiters. ErrNotHeld where session and
	// token do not hold the name.
	Release(ctx context.Context, h Held, contended bool) ([]Handoff, error)

	// Leave undoes an attempt, whatever its outcome: it deletes the place in the queue, or releases
	// the lock, and grants what fits then as Release does. An attempt without a trace is no error.
	Leave(ctx context.Context, session, name, attempt string) ([]Handoff, error)

	// Reclaim takes the lock from a holder named by a State, if the holder's session is dead or
	// expired or its fixed lease is over, and grants it as Release does. It expires the session
	// first where that is due. Where the holder is another by now, or alive, it does nothing and
	// returns false. ErrBusy where a transaction that guards this hold is open. A holder with token
	// 0 is a place in the queue (State.Head). With the zero Holder it hands on a name that is
	// State.Ready. self is the calling session: a grant to it needs no notification.
	Reclaim(ctx context.Context, self, name string, holder Holder) (next []Handoff, taken bool, err error)

	// Break is Reclaim from a live holder, with the same order of locks. ErrBusy where a
	// transaction that guards this hold is open: then no new one begins for two seconds. The old
	// holder is notified, and the event is recorded in the same transaction.
	Break(ctx context.Context, self, name string, holder Holder, e Event) (next []Handoff, taken bool, err error)

	// Downgrade turns the whole name into one unit of Readers, with the same attempt and token, and
	// grants what fits then as Release does, in one transaction. It succeeds if the lock is such a
	// share already. ErrNotHeld. ErrCapacity where waiters want units of another capacity.
	Downgrade(ctx context.Context, h Held) ([]Handoff, error)

	// Upgrade turns the share of an attempt into the whole name, with a new token, before all
	// waiters. It returns false if there is another share. It succeeds if the attempt holds the
	// whole name already. ErrNotHeld.
	Upgrade(ctx context.Context, h Held, attempt string) (Grant, bool, error)

	// Raise raises the token of a lock on the whole name to at least a value, and returns the token
	// that it has now. ErrNotHeld.
	Raise(ctx context.Context, h Held, token int64) (int64, error)

	// TakeAll takes locks in one transaction, in the order given, which is that of their names, up
	// to the first that Take would refuse. It returns the grants. It may stop earlier, to keep the
	// transaction short.
	TakeAll(ctx context.Context, rs []Request) ([]Grant, error)

	// ReleaseAll releases, in one transaction, the locks without waiters, and returns the others.
	// Among these are locks that are not held: Release reports them.
	ReleaseAll(ctx context.Context, held []Held) (rest []Held, err error)

	// Look reads the state of names as the session sees it, in no order. A name without a row is
	// left out.
	Look(ctx context.Context, session string, names []string) ([]State, error)

	// Listen listens for grants to the session until ctx ends or the connection fails. It calls
	// ready once, as soon as no later grant can be missed. It calls wake for each hint that a lock
	// was granted or taken away. ErrUnsupported where the engine can only be polled.
	Listen(ctx context.Context, session string, ready func(), wake func(Hint)) error

	// Expired lists up to limit sessions, oldest first: expired ones, and dead ones that still have
	// a lock or a place in a queue.
	Expired(ctx context.Context, limit int) ([]string, error)

	// Expire ends an expired session for good, and reports whether it is dead now. A session
	// without a row is dead afterwards: the row is written, so that the unique key decides and not
	// a snapshot. ErrBusy where another call is ending the session. Guarded transactions are no
	// obstacle.
	Expire(ctx context.Context, session string) (bool, error)

	// Orphans lists up to limit locks and places in queues that a dead session has.
	Orphans(ctx context.Context, session string, limit int) ([]Claim, error)

	// Overdue lists up to limit locks whose fixed lease is over, with their holders.
	Overdue(ctx context.Context, limit int) ([]State, error)

	// Waits lists the part of the wait-for graph that the attempts can reach: their own places in
	// queues; the holders of each name that has a place in the list; the places in queues of each
	// owner (session, host and thread) that holds such a name. Dead sessions are left out. It is
	// one statement, and so one snapshot.
	Waits(ctx context.Context, attempts []string) ([]Wait, error)

	// Purge deletes up to limit lock rows that were unused for longer than idle. It walks the names
	// upwards from after, and returns how many it deleted and where to go on; "" at the end. It
	// skips rows in use.
	Purge(ctx context.Context, idle time.Duration, after string, limit int) (deleted int, next string, err error)

	// DropGuards deletes up to limit rows: those of MakeGuard for locks that are not held any more,
	// and those that refused takeovers have left. It skips rows that a transaction has locked. It
	// returns how many it deleted. If that is limit, there may be more.
	DropGuards(ctx context.Context, limit int) (deleted int, err error)

	// Forget deletes up to limit dead sessions that started longer ago than idle and that nothing
	// refers to.
	Forget(ctx context.Context, idle time.Duration, limit int) (int, error)
}

// Upkeep is a reserved connection. One goroutine at a time uses it.
type Upkeep interface {
	// Heartbeat moves the end of the session's lease to TTL from now. It returns false if the
	// session is dead. A *SchemaError where this build can no longer work with the tables,
	// ErrReplaced where the database is another: the lease was not moved, and the session is over.
	Heartbeat(ctx context.Context, session string, ttl time.Duration) (alive bool, err error)

	// Claims lists every lock and every place in a queue that the session has.
	Claims(ctx context.Context, session string) ([]Claim, error)

	// Close releases the connection. It never waits for the network longer than a second.
	Close() error
}
