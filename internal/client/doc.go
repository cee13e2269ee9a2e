// Package client acquires, converts and releases locks for package dblock, on the engines of
// package driver. It knows no type of the application's transactions: a transaction comes in as a
// Tx. Package ledger keeps what the database has for the client (grants) and what its callers have
// (claims), and lets requests wait. Package store calls the database.
//
// # Flow
//
// Client.Acquire (lock.go) makes an attempt (acquire.go), which tries until it holds the name.
// attempt.try registers one request in the session that is alive, and sends it: store.Session.Take
// if the name seems free, and otherwise Ledger.Join. Ledger.Hold enters the lock. Lock.Unlock ends
// in release (unlock.go), which passes the lock to the next claim of its grant, or releases it in
// the database. Each call sends these transitions of package protocol, and Read; a test compares
// the table with the code:
//
//	Lock of a free name                     Take
//	Lock of a held name                     Take, Join
//	Lock of a name that was seen held       Join
//	Lock beside a waiter of the client      Join
//	Lock that stops waiting                 Removal
//	Lock of its own owner                   -
//	TryLock of a held name                  Take, Read
//	TryLock of a name that was seen held    Read
//	LockAll of free names                   2 × Take
//	Unlock without waiters                  Removal
//	Unlock with a waiter of another client  Removal
//	Unlock of a lock that was entered twice -
//	Unlock of Locks                         2 × Removal
//	Extend                                  Extend
//	Detach                                  Move
//
// # Verbs
//
// How a lock ends has one verb each, in this package and those below:
//
//	release   Unlock, UnlockTx and Close: the holder gives the lock up
//	revoke    the lock ends without its holder: a loss, a takeover, Break
//	expire    a lease ends at its time: that of a session, or a fixed one
//	abandon   no caller relies on an attempt any more: the client releases its lock
//	transfer  the lock goes to another holder without being free: the next claim, a session
//	finish    nothing of an attempt is in the database any more
//
// # Callbacks
//
// The logger and the observer are the application's code, which may block. From New on their calls
// go through queues of package tell: no deadline, heartbeat, listener or hand-over waits for them.
// When several locks end, all their contexts end before anything else follows (package ledger).
package client
