// Package sqlite keeps dblock's locks in tables of an SQLite database, 3.35 or newer, for the
// processes of one machine.
//
// # Writers
//
// SQLite has one writer at a time, and the lock on the database is the only lock. Every transition
// begins with BEGIN IMMEDIATE, which takes that lock before the first read. A transaction that
// reads first and writes later fails when another one wrote in between, whatever the busy timeout.
// Under the lock nothing that was read can change before the commit, so the rules of the other
// engines about rows that a statement waited for hold without further care.
//
// A transition that changes the holder never meets a guarded transaction. Guard writes in the
// caller's transaction, and so holds the database's write lock until that transaction ends. The
// transition waits for it as for any other writer, without a connection. ErrBusy is for callers
// that do not want to wait: TryLock, after 50 ms, also where it has to write the client's first
// session.
//
// A transition follows package protocol: read the row of the name, decide, write the row. The price
// of a statement is mostly that of parsing it, each time it runs. Therefore only two transitions
// have a statement of their own: taking a free name, and releasing a name without waiters.
//
// # Inside the application's transactions
//
// Guard, UnlockTx and LockTx first take the write lock, with an UPDATE of no row, and then read:
// from there to the end of the transaction nothing can change. In WAL mode, a transaction that has
// read before another connection wrote cannot write any more, and fails with ErrRetry
// (SQLITE_BUSY_SNAPSHOT): a heartbeat is such a write. With a rollback journal, such a transaction
// keeps others from committing. So call these methods first in a transaction, or begin it with
// BEGIN IMMEDIATE (_txlock=immediate).
//
// Guard and UnlockTx wait for no other write of dblock: their transaction may block it. If
// goroutines of one client pass a lock on in memory, its row shows their cohort. Guard checks the
// cohort's token, and UnlockTx detaches the present member in the transaction.
//
// While LockTx waits, a transaction that has neither read nor written holds nothing, and leases
// come and go. A transaction that has written keeps every lease from being released. If a lease is
// in the way, LockTx then waits until its context ends. With Also the same holds from the second
// name on. LockTx reads the name before it locks, on another connection of the pool. If no
// connection is free within 20 ms, or a lease is taken between the read and the lock, LockTx has
// locked the database in vain. It then fails with ErrRetry, and the transaction is to be rolled
// back. TryLockTx reports that the lock was not acquired.
//
// A pool with a shared cache and PRAGMA read_uncommitted sees the changes of UnlockTx before their
// commit: a waiter hears of a grant that a rollback takes back. Do without that pragma where
// UnlockTx is used.
//
// # Waiting
//
// The application's busy timeout is a sleep inside SQLite that no context can end. So it is set to
// zero while a connection is borrowed, and restored before the connection returns to the pool. A
// call that finds the database busy returns its connection, waits with jitter, and retries until
// its context ends. Single statements run to their end, cancelled or not: none can wait, and an
// interrupted statement would leave its outcome unknown.
//
// No call holds a connection while it waits for another, so a pool of one is enough.
//
// # Wake-ups
//
// A grant to a session of the same process notifies it directly. A session of another process has a
// datagram socket in the folder DATABASE-dblock beside the file, which containers share with the
// file. Users that may write to the file may send to the socket. The granter sends a notice after
// its commit, and the session reads the database. A notice can be lost: its sender was killed in
// between, may not use the folder, or is of a build that sends none. So the listener also reads a
// counter in the row of its session, which the granting transaction increments. It does so every 5
// s, 0.1 s after a notice, and for a minute after a loss every 10 ms. A waiter hears of a grant
// whose notice was lost after 5 s, or after TTL/3 if that is less.
//
// UnlockTx sends its notice before the commit, which dblock does not see. The listener then reads
// every 10 ms, and less often the longer the transaction takes.
//
// Without a socket the listener polls: every 10 ms while its session waits or watches a name, every
// millisecond just after a grant, and every 100 ms while the session only holds locks, which others
// may ask for. There is no socket on Windows, nor on systems other than Linux if the path is longer
// than the address of a socket can be.
//
// # The file
//
// In WAL mode SQLite continues to use a file that was deleted, moved or replaced, while every other
// process locks in the new one. So each call first compares the file at the path with the one that
// the engine first used. If they differ, the call fails with ErrConfig, and a living session ends
// with its next heartbeat: its locks are lost at once. Until then, for TTL/5, two holders are
// possible. Reopen the pool, or restore the file.
//
// SQLite forgets the links of its path once it has opened the file. So each heartbeat checks where
// a new connection of the pool leads. If that is another file, each call fails in the same way
// until the pool is reopened. A pool whose connections are all open, such as one with
// SetMaxOpenConns(1), opens no new one and notices nothing: do not point its path elsewhere.
//
// In WAL mode the locks and the latest commits are in the -wal and the -shm, which are named after
// the file. So a file under two names, a hard link or a single file that is mounted into a
// container, would have two holders. Such a file is refused (ErrConfig) when an engine first uses
// it, and each time its -wal has been made anew: use one name, and mount the folder. On Linux a
// -wal or a -shm that was deleted while the pool has it open counts as a file that was deleted.
//
// # Attached databases
//
// The tables may be in a database that each connection of the pool attaches, migrated as a file of
// its own. dblock uses the first database that has its tables, in the order main, then the attached
// ones as they were attached. BEGIN IMMEDIATE locks all of a connection's databases, so each
// transition waits for writers of any of them. In an application's transaction, Guard, UnlockTx and
// LockTx lock only the database with the tables. Writes of the transaction to other databases
// commit and roll back with it. In WAL mode, however, SQLite commits file by file: a crash of the
// machine in the middle may keep one file's changes and lose the other's.
//
// # Settings
//
// Every journal mode is supported but OFF, with which SQLite cannot roll back (ErrConfig).
// locking_mode=EXCLUSIVE is for a pool of one and a single process (ErrConfig otherwise). On a full
// disk nothing is granted (ErrUnavailable), held locks remain until their TTL has passed, and work
// continues once there is room.
//
// # Durability
//
// In WAL mode dblock takes, hands on and releases locks with synchronous=NORMAL if the application
// has set FULL, and restores FULL before the connection returns to the pool. A pool of one
// connection, and connections that share a cache, keep the application's setting. A crash of the
// machine can lose the last of these commits, and their holders with them. Tokens follow the clock,
// so they rise all the same, unless the machine starts with a clock that is behind. Set
// synchronous=EXTRA on a machine whose clock does not run while it is off: in WAL mode EXTRA is
// FULL by another name, and dblock does not change it. The application's setting also applies to a
// token that is ahead of the clock, the rest of a name (MinHold), the history, OncePer, and to
// everything in the application's transactions.
package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dblock-go/dblock/engines"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/inside"
)

// New keeps locks through the application's pool, with any SQLite driver (modernc.org/sqlite,
// mattn/go-sqlite3, ncruces/go-sqlite3) and any of its settings. The pool remains the
// application's: dblock never closes it and reserves no connection of it. An in-memory database
// needs SetMaxOpenConns(1). Run migrate.Up or the files of package migrations first.
func New(db *sql.DB) engines.Engine[*sql.Tx] {
	e := &engine{db: database{db: db, turn: make(chan struct{}, 1)}}
	return *inside.Make[engines.Engine[*sql.Tx]](driver.Engine[*sql.Tx]{
		Backend: e, In: func(tx *sql.Tx) driver.Tx { return inTx{&e.db, tx} },
	})
}

// engine runs the SQL of every transition; db carries statements to the file.
type engine struct{ db database }

func (e *engine) Connections() driver.Pool {
	s := e.db.db.Stats()
	return driver.Pool{InUse: s.InUse, Most: s.MaxOpenConnections}
}

func (e *engine) Validate() error {
	if e.db.db == nil {
		return driver.Fail(driver.ErrConfig, errors.New("the pool is nil"))
	}
	return nil
}

// HostFolder returns the folder of the inboxes, which is beside the database.
func (e *engine) HostFolder(create bool) (path string, ok bool) {
	database := e.db.path()
	if create && database != "" {
		ok = makeHostFolder(database) == nil
	}
	return database + "-dblock", database != "" && (ok || !create)
}

// DropReadOnly does nothing: a file has no other server.
func (e *engine) DropReadOnly(context.Context) {}
