// Package driver is what a database engine must do for dblock, and nothing else: one interface, the
// values that go in and the values that come out. It imports the standard library only; engines
// import it, the client imports it, and neither imports the other.
//
// Every method is one transition of the tables, atomic in itself. An engine decides races inside
// the database, by the database's clock, and keeps no state of its own between calls: who waits,
// who retries and who gives up is the client's business.
//
// # Order of locks
//
// Inside an engine the order is always: row of dblock_locks, row of dblock_guards, row of
// dblock_sessions, row of dblock_heartbeats, rows of dblock_waiters. Whatever changes who holds a
// name, or who waits for it, first locks the name's row in dblock_locks and decides in a later
// statement of the same transaction.
//
// # Guards
//
// A transaction of the application's that guards a hold has the hold's row in dblock_guards
// share-locked. Whatever takes a lock from a holder that did not give it up (Reclaim, Break,
// Reenter) locks that row after the name's, without waiting, and writes it. Release and Leave are
// the holder's own: they never touch it. Nor does the end of a session, which takes nothing.
package driver

import (
	"context"
	"time"
)

// Engine is a database whose callers' transactions are of type TX (pgx.Tx, *sql.Tx): locks in
// tables, with a Backend and its Transactions, or else the server's own, with Native. An engine's
// constructor returns this type, so that dblock.New can infer TX: a struct, since from an interface
// Go infers by methods alone.
type Engine[TX any] struct {
	Backend
	Transactions Transactions[TX]
	Native       Native[TX]
}

// Backend is a database that holds locks. All methods are safe for concurrent use. They return
// errors that match one of the kinds in this package with errors.Is, the context's own error, or
// the vendor's error as it came.
//
// Transactions of the application's may lock a name's row for as long as they like (LockTx,
// UnlockTx). No method keeps a connection to wait for one: what needs that row returns ErrBusy
// after a moment, and did nothing. On MySQL the single statements of Take and Release cannot be
// told how long to wait: their contexts end it.
type Backend interface {
	Records
	Inspection

	// Validate refuses what can be refused without I/O: a nil pool, a pool too small.
	Validate() error

	// Schema is what dblock's tables say about themselves: whether this build can work with them.
	Schema(ctx context.Context) (Schema, error)

	// Connections tells how many connections of the application's pool are in use now, and how many
	// it allows; 0: any number. It is asked only to tell why nothing was answered.
	Connections() (inUse, most int)

	// OpenSession writes the rows of a new session. Its lease ends TTL after the statement ran.
	// ErrBusy where a transaction of the application's has locked the database.
	OpenSession(ctx context.Context, s Session) error

	// EndSession ends a session in good order, after its locks were released: nothing can be
	// granted to it any more, and its rows go where nothing refers to them. A session that is not
	// there is no error.
	EndSession(ctx context.Context, session string) error

	// Upkeep reserves the connection on which a session is kept alive, apart from the work of the
	// application. Nothing runs on it that can wait for a row, except the heartbeat for its own.
	Upkeep(ctx context.Context) (Upkeep, error)

	// Beat is Heartbeat of Upkeep, over the application's pool: for as long as there is no reserved
	// connection.
	Beat(ctx context.Context, session string, ttl time.Duration) (alive bool, err error)

	// Attend tells the engine that a client with this TTL works through it, until leave is called;
	// 0: somebody without a session, such as a reaper. It does no I/O. While a client attends, the
	// engine may keep connections of its own open between two uses. leave closes them when the last
	// client has left, within about a second. Without it everything works, on connections that are
	// made anew.
	Attend(ttl time.Duration) (leave func())

	// Beside runs do on a connection of the engine's own, which is neither that of Upkeep nor one
	// that the application's transactions can keep busy, and once more on a new one where it turns
	// out to be broken. do must not call Close. ErrUnavailable where the application's pool gives
	// no connection before ctx ends.
	Beside(ctx context.Context, do func(ctx context.Context, up Upkeep) error) error

	// Take takes the lock if nobody waits for it, nobody holds it, or holds more of it than leaves
	// room for the request, and its rest is over. One statement, one commit, after those that make
	// the row of a name that has none. False also where the request's capacity is not the name's.
	Take(ctx context.Context, r Request) (Grant, bool, error)

	// Enqueue joins the end of the queue of a name that somebody holds or waits for, with a ticket
	// from the name's row, which it has locked. Where nobody does, it may take the lock instead, or
	// do nothing and return Gone, as it does where the name has no row: take again. ErrCapacity
	// where others share the name, or wait for it, with another capacity.
	Enqueue(ctx context.Context, r Request) (Grant, Outcome, error)

	// Reenter takes the lock over from its present holder, whatever session that is, if the
	// holder's host and thread are those of the request, and gives it a new token. It reports false
	// where they are not, and for a share. ErrBusy where a transaction that guards the lock is
	// open: then no new one begins for two seconds.
	Reenter(ctx context.Context, r Request) (Grant, bool, error)

	// SetHolds records how many times the holder has entered the lock. ErrNotHeld where it no
	// longer holds it.
	SetHolds(ctx context.Context, h Held, holds int) error

	// Release gives what was held to those who are first in the queue, live, and fit: in the order
	// of their tickets, each with a token of its own, until the first that does not fit. With
	// contended false it may first try the single statement that suffices when nobody waits.
	// ErrNotHeld where session and token do not hold the name.
	Release(ctx context.Context, h Held, contended bool) ([]Handoff, error)

	// Leave undoes an attempt, whatever became of it: a place in the queue is given up, a lock is
	// released, and what that makes room for is handed on as in Release. An attempt that is nowhere
	// is no error.
	Leave(ctx context.Context, session, name, attempt string) ([]Handoff, error)

	// Reclaim takes the lock from the holder that a State named, if that holder's session is dead
	// or over its time, or its fixed lease is over, and hands it on. It expires the session first
	// where that is due. Where the holder is another by now, or alive, it does nothing and reports
	// false. ErrBusy where a transaction that guards this hold is open. A holder with token 0 is a
	// place in the queue (State.Head). Without a holder it hands on what is State.Ready. self is
	// the session that asks: a grant to it needs no notification.
	Reclaim(ctx context.Context, self, name string, holder Holder) (next []Handoff, taken bool, err error)

	// Break is Reclaim from a holder that lives: the same order of locks, and ErrBusy where a
	// transaction that guards this hold is open; then no new one begins for two seconds. The old
	// holder is told, and the event is recorded in the same transaction.
	Break(ctx context.Context, self, name string, holder Holder, e Event) (next []Handoff, taken bool, err error)

	// Downgrade makes the whole name one unit of Readers, with the same attempt and token, and
	// hands on what that makes room for, in one transaction. To hold it so already is success.
	// ErrNotHeld, ErrCapacity where those who wait want units of another capacity.
	Downgrade(ctx context.Context, h Held) ([]Handoff, error)

	// Upgrade makes the share of an attempt the whole name, with a new token, before all who wait,
	// if nobody else has a share of it; false if somebody has. To have the whole name already is
	// success. ErrNotHeld.
	Upgrade(ctx context.Context, h Held, attempt string) (Grant, bool, error)

	// Raise lifts the token of a lock that is held as a whole to at least a value, and returns what
	// it is now. ErrNotHeld.
	Raise(ctx context.Context, h Held, token int64) (int64, error)

	// TakeAll takes locks in the order given, which is that of their names, up to the first that
	// Take would not take, in one transaction. It returns the grants of those that it took; it may
	// stop earlier, for the sake of short transactions.
	TakeAll(ctx context.Context, rs []Request) ([]Grant, error)

	// ReleaseAll releases, in one transaction, those locks that nobody waits for, and returns the
	// others, also those that are not held so: Release tells.
	ReleaseAll(ctx context.Context, held []Held) (rest []Held, err error)

	// Look reads the state of names as the session sees it, in no order; a name without a row is
	// left out.
	Look(ctx context.Context, session string, names []string) ([]State, error)

	// Listen blocks while it listens for grants to the session, until ctx ends or the connection
	// fails. It calls ready once as soon as no grant made from then on can be missed, and wake for
	// each hint that one was made, or that one was taken away. ErrUnsupported where the engine can
	// only be polled.
	Listen(ctx context.Context, session string, ready func(), wake func(Hint)) error

	// Expired lists up to limit sessions whose time is over or that are dead and still hold a lock
	// or a place in a queue, oldest first.
	Expired(ctx context.Context, limit int) ([]string, error)

	// Expire ends a session whose time is over, for good, and reports whether it is dead now. A
	// session whose row is missing is dead afterwards: the row is written, so that the unique key
	// decides and not a snapshot. ErrBusy where another is ending the session just now. Guarded
	// transactions are no obstacle.
	Expire(ctx context.Context, session string) (bool, error)

	// Orphans lists up to limit locks and places in queues of a dead session.
	Orphans(ctx context.Context, session string, limit int) ([]Claim, error)

	// Overdue lists up to limit locks whose fixed lease is over, with their holders.
	Overdue(ctx context.Context, limit int) ([]State, error)

	// Waits lists who waits for whom, as far as it concerns the attempts: their own places in
	// queues; of each name that is waited for in the list, those who hold it; of each owner
	// (session, host and thread) who holds one, the places in queues. Dead sessions are left out.
	// One statement, so that it is one snapshot.
	Waits(ctx context.Context, attempts []string) ([]Wait, error)

	// Purge deletes up to limit lock rows that nobody has used for longer than idle, walking the
	// names upwards from after, and returns how many it deleted and where to go on; "" at the end.
	// Rows in use are passed over.
	Purge(ctx context.Context, idle time.Duration, after string, limit int) (deleted int, next string, err error)

	// DropGuards deletes up to limit rows of MakeGuard, of locks that are not held any more, and
	// what refused takeovers have left. It passes over those that a transaction has locked. It
	// returns how many it deleted; with limit, there may be more.
	DropGuards(ctx context.Context, limit int) (deleted int, err error)

	// Forget deletes up to limit dead sessions to which nothing refers and that started longer ago
	// than idle.
	Forget(ctx context.Context, idle time.Duration, limit int) (int, error)
}

// Upkeep is a reserved connection. It is used by one goroutine at a time.
type Upkeep interface {
	// Heartbeat moves the end of the session's lease to TTL from now. False: the session is dead. A
	// *SchemaError where the tables have become such that this build cannot work with them,
	// ErrReplaced where the database is another: the lease was not moved, and the session is over.
	Heartbeat(ctx context.Context, session string, ttl time.Duration) (alive bool, err error)

	// Claims lists every lock and every place in a queue that the session has.
	Claims(ctx context.Context, session string) ([]Claim, error)

	// Close gives the connection back. It never waits for the network longer than a second.
	Close() error
}
