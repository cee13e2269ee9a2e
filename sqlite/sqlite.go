// Package sqlite keeps dblock's locks in tables of an SQLite database, 3.35 or newer, for the
// processes of one machine.
//
// # Writers
//
// SQLite has one writer at a time, and the lock on the database is all the locking there is. Every
// transition begins with BEGIN IMMEDIATE, which takes that lock before anything is read: a
// transaction that reads first and writes later fails when another wrote in between, whatever the
// busy timeout. Under it the rules of the other engines about rows that a statement waited for are
// met by themselves: nothing read here can change before the commit.
//
// A transition that changes the holder will therefore not meet a guarded transaction: Guard writes
// in the caller's transaction, and so holds the database's write lock until that ends. Ours waits
// for it like for any other writer, but holds no connection meanwhile. ErrBusy is for callers that
// do not want to wait: TryLock, after 50 ms, also where it has to write the client's first session.
//
// So a transition is what package protocol says: read the row of the name, decide, write it. A
// statement's price is mostly that of parsing it, and it is parsed each time. So taking a free name
// and releasing one that nobody waits for have a statement of their own, and all else has not.
//
// # Inside the application's transactions
//
// Guard, UnlockTx and LockTx first take the write lock, with an UPDATE of no row, and then look:
// from there to the end of the transaction nothing can change. A transaction in WAL mode that has
// read before somebody else wrote cannot write any more, and is told to begin anew (ErrRetry, with
// SQLITE_BUSY_SNAPSHOT): a heartbeat is such a write. With a rollback journal it keeps others from
// committing instead. So call these first in a transaction, or begin it with BEGIN IMMEDIATE
// (_txlock=immediate).
//
// Guard and UnlockTx wait for no other write of dblock's: their transaction may be in its way. A
// lock that goroutines of one client pass on in memory has a row that shows their cohort. Guard
// checks the cohort's token, and UnlockTx detaches the present member in the transaction.
//
// While it waits for its turn in LockTx, a transaction that has neither read nor written holds
// nothing, and leases come and go. One that has written keeps every lease from being given back: if
// one is in the way, LockTx waits until its context ends, and with Also that is so from the second
// name on. LockTx looks before it locks, on another connection of the pool. Where there is none
// within 20 ms, or a lease is taken between the look and the lock, it has locked the database for
// nothing: ErrRetry, and the transaction is to be rolled back (TryLockTx says that the lock was not
// acquired).
//
// A pool with a shared cache and PRAGMA read_uncommitted sees what UnlockTx has done before its
// transaction commits: a waiter is told of a grant that a rollback takes back. Do without that
// pragma where UnlockTx is used.
//
// # Waiting
//
// The application's busy timeout is a sleep inside SQLite that no context can end (seen: 3 s with a
// context of 0.1 s). So it is set to zero while a connection is borrowed, and put back before the
// connection is. What finds the database busy gives its connection back, waits with jitter, and
// comes again until its context ends. The statements in between run to their end, cancelled or not:
// none can wait, and a statement that is interrupted leaves a doubt.
//
// No call holds a connection while it waits for another, so that a pool of one is enough.
//
// # Wake-ups
//
// A grant to a session of the same process notifies it directly. A session of another process has a
// datagram socket in the folder DATABASE-dblock beside the file, which containers share with the
// file. Those who may write to the file may send to it. The granter sends a notice after its
// commit, and the session looks it up. A notice can be lost: its sender was killed in between, may
// not use the folder, or is of a build that sends none. So the listener also looks at a counter in
// the row of its session, which the granting transaction moves. It does so every 5 s, 0.1 s after a
// notice, and for a minute after a loss every 10 ms. A waiter therefore hears of a grant whose
// notice was lost 5 s later, or TTL/3 where that is less.
//
// UnlockTx sends its notice before the commit, which dblock does not see. The listener then looks
// every 10 ms, and more rarely the longer the transaction takes.
//
// Where no socket can be made the listener polls: every 10 ms while its session waits for something
// or watches a name, for a moment after a grant every millisecond, and every 100 ms while all it
// does is hold something, which others may ask for. That is so on Windows, and on other systems
// than Linux where the path is longer than the address of a socket can be.
//
// # The file
//
// SQLite in WAL mode goes on in a file that was deleted, moved or replaced, while every other
// process locks in the new one. So each call first compares the file that the path leads to with
// the one that the engine first used. Where it is another, the call fails with ErrConfig, and a
// session that lives ends with its next heartbeat: its locks are lost at once. Until then, for
// TTL/5, two holders are possible. The pool has to be opened again, or the file put back.
//
// SQLite forgets the links of its path once it has opened the file. So each heartbeat looks where a
// new connection of the pool leads to. Where that is another file, each call fails in the same way
// until the pool is opened again. A pool whose connections are all open, as one with
// SetMaxOpenConns(1), makes no new one, and notices nothing: do not point its path elsewhere.
//
// # Attached databases
//
// The tables may be in a database that each connection of the pool attaches, migrated as a file of
// its own. The first of main and the attached databases, in the order in which they were attached,
// that has tables of dblock's is the one. BEGIN IMMEDIATE locks all of a connection's databases:
// each transition then waits for writers of any of them. In a transaction of the application's,
// Guard, UnlockTx and LockTx lock the database with the tables alone. What the transaction writes
// elsewhere commits and rolls back with it; but in WAL mode SQLite commits file by file, so that a
// crash of the machine in the middle may keep the one and lose the other.
//
// # Settings
//
// Any journal but OFF, with which SQLite cannot roll back (ErrConfig). locking_mode=EXCLUSIVE is
// for a pool of one and a single process (ErrConfig otherwise). On a disk that is full nothing is
// granted (ErrUnavailable), what is held stays so until its TTL is over, and all goes on when there
// is room.
//
// # Durability
//
// In WAL mode dblock takes, hands on and releases locks with synchronous=NORMAL where the
// application has set FULL, and puts FULL back before the connection goes back. A pool of one
// connection, and connections that share a cache, keep what is set. The last of these
// commits can be lost when the machine goes down, and their holders go down with it. Tokens follow
// the clock, so that they rise all the same, unless the machine starts with a clock that is behind.
// Set synchronous=EXTRA on a machine whose clock does not run while it is off: in WAL mode EXTRA is
// FULL by another name, and dblock leaves it as it is. The application's setting also decides about
// a token that is ahead of the clock, the rest of a name (MinHold), the history, OncePer, and all
// that happens in the application's transactions.
package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/internal/driver"
)

// New keeps locks through the application's pool, with any SQLite driver (modernc.org/sqlite,
// mattn/go-sqlite3, ncruces/go-sqlite3) and any settings of it. The pool stays the application's:
// dblock never closes it and reserves no connection of it. An in-memory database needs
// SetMaxOpenConns(1). Run migrate.Up or the files of package migrations first.
func New(db *sql.DB) driver.Engine[*sql.Tx] {
	e := &engine{database{db: db, turn: make(chan struct{}, 1)}}
	return driver.Engine[*sql.Tx]{Backend: e, Transactions: transactions{&e.db}}
}

// engine is the SQL of every transition; db is how statements reach the file.
type engine struct{ db database }

func (e *engine) Connections() (inUse, most int) {
	s := e.db.db.Stats()
	return s.InUse, s.MaxOpenConnections
}

func (e *engine) Validate() error {
	if e.db.db == nil {
		return driver.Fail(driver.ErrConfig, errors.New("the pool is nil"))
	}
	return nil
}

// DropReadOnly does nothing: a file has no other server.
func (e *engine) DropReadOnly(context.Context) {}
