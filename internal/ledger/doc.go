// Package ledger keeps the locks that a client believes to hold: one table of names under one
// mutex, with the attempts that the database may know, the holds, the owners that acquire the name,
// and whether others wait for it. It sends no statement.
//
// A hold ends by itself with its session (LoseSession), with its fixed lease (lease.go), when the
// database does not have it any more (Lose), or without progress (progress.go). When several holds
// end, all their contexts end before anything else follows (revoke).
//
// # States
//
// An attempt is in one State from before its statement is sent until nothing of it can be in the
// database any more. Ledger.move makes every transition; one that is not here is logged as an
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
//	    ReleasingTx --> AwaitingTx: await
//	    ReleasingTx --> Held: rollback
//	    ReleasingTx --> Overtaking: unlock
//	    ReleasingTx --> Gone: lose
//	    ReleasingTx --> Overdue: expire
//	    AwaitingTx --> AwaitingTx: releaseTx
//	    AwaitingTx --> AwaitingTx: await
//	    AwaitingTx --> Held: rollback
//	    AwaitingTx --> ReleasedTx: commit
//	    AwaitingTx --> Settling: unlock
//	    AwaitingTx --> Gone: lose
//	    AwaitingTx --> Overdue: expire
//	    ReleasedTx --> Gone: unlock
//	    ReleasedTx --> Gone: finish
//	    Overtaking --> Settling: await
//	    Overtaking --> Undoing: abandon
//	    Overtaking --> Gone: finish
//	    Settling --> Settling: await
//	    Settling --> Undoing: abandon
//	    Settling --> Gone: finish
//	    Gone --> Undoing: abandon
//	    Gone --> Gone: finish
//	    Gone --> [*]
//
// A hold is found by its name and its owner while it is Held, and at no other time. UnlockTx enters
// ReleasingTx before its statement is sent, and AwaitingTx when that has succeeded: from then on
// only the database knows whether the transaction has released the hold. Until Guard shows a
// rollback, the client expects a commit: a Lock of the same owner queues, and the handle is good
// for Guard, UnlockTx and Unlock alone.
//
// The database may not have a hold any more. Then the hold is released in AwaitingTx and in
// Settling, and lost in every other state. A statement is answered before its transaction commits,
// so no commit of UnlockTx precedes AwaitingTx.
//
// A hold is held in the database by its Mode, which a conversion changes.
package ledger
