// Package client is what stands between the words that users read (package dblock) and the engines
// (package driver): acquiring, holding and losing locks, without the type of the application's
// transactions. A transaction comes in as a Tx. Package ledger has what the client believes to
// hold, package store how it calls the database, package cohort how it waits.
//
// # The path of a lock
//
// Client.Acquire (lock.go) calls acquire (acquire.go), which tries until it holds the name. try
// makes one attempt in the session that is alive: store.Session.Take where the name seems free,
// else queue, which joins a cohort (package cohort). Ledger.Rely enters the hold of the grant.
// Lock.Unlock ends in release (unlock.go), or in the next member of its cohort.
//
// # Verbs
//
// How a lock ends has one verb each, in this package and those below:
//
//	release   Unlock, UnlockTx and Close: the holder gives the lock up
//	revoke    the lock ends without its holder: a loss, a takeover, Break
//	expire    a lease ends at its time: that of a session, or a fixed one
//	abandon   no caller relies on an attempt any more: the client releases what it has got
//	transfer  the lock goes to another holder without being free: a member of a cohort, a session
//	finish    nothing of an attempt is in the database any more
//
// # What is told
//
// The logger and the observer are the application's code, which may block. Their calls go through
// queues of package tell, from New on: no deadline, heartbeat, listener or hand-over waits for
// them. When several holds end, all their contexts end before anything else follows (package
// ledger).
package client
