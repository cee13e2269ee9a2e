// Package client is what stands between the words that users read (package dblock) and the engines
// (package driver): acquiring, holding and losing locks, without the type of the application's
// transactions. A transaction comes in as a Tx.
//
// # The path of a lock
//
// Client.Acquire (lock.go) calls acquire (acquire.go), which tries until it holds the name. try
// makes one attempt in the session that is alive: store.Session.Take where the name seems free,
// else queue, which joins a cohort (package cohort). rely (loss.go) makes a hold of the grant.
// Lock.Unlock ends in release (unlock.go), or in the next member of its cohort.
//
// # What is told
//
// The logger and the observer are the application's code, which may block. Their calls go through
// queues of package tell, from New on: no deadline, heartbeat, listener or hand-over waits for
// them. When several holds end, all their contexts end before anything else follows (forfeit).
//
// # States
//
// An attempt is in one State from before its statement is sent until nothing of it can be in the
// database any more. registry.move makes every transition; one that is not here is logged as an
// error, and fails the test:
//
//	stateDiagram-v2
//	    [*] --> Requested
//	    Requested --> Held: grant
//	    Requested --> Undoing: abandon
//	    Requested --> Gone: finish
//	    Held --> Lent: lend
//	    Held --> Releasing: unlock
//	    Held --> Gone: lose
//	    Held --> Overdue: expire
//	    Held --> ReleasingTx: releaseTx
//	    Lent --> Undoing: abandon
//	    Lent --> Gone: finish
//	    Releasing --> Requested: pass
//	    Releasing --> Undoing: abandon
//	    Releasing --> Gone: finish
//	    Undoing --> Undoing: abandon
//	    Undoing --> Gone: finish
//	    Overdue --> Gone: finish
//	    ReleasingTx --> ReleasingTx: releaseTx
//	    ReleasingTx --> Held: rollback
//	    ReleasingTx --> ReleasedTx: commit
//	    ReleasingTx --> Settling: unlock
//	    ReleasingTx --> Gone: lose
//	    ReleasingTx --> Overdue: expire
//	    ReleasedTx --> Gone: unlock
//	    ReleasedTx --> Gone: finish
//	    Settling --> Undoing: abandon
//	    Settling --> Gone: finish
//	    Gone --> Undoing: abandon
//	    Gone --> Gone: finish
//	    Gone --> [*]
//
// A hold is found by its name and its owner while it is Held, and at no other time. UnlockTx enters
// ReleasingTx before its statement is sent: from then on only the database knows whether the
// transaction has released the hold. Until Guard shows a rollback, the client expects a commit: a
// Lock of the same owner queues, and the handle is good for Guard, UnlockTx and Unlock alone.
//
// What a hold is in the database is its mode, which a conversion changes.
package client
