// Package ledger keeps what a client has of locks, on two levels. A Grant is what the database has
// for the client: an attempt at a name, with its place in the queue or its lock. A Claim is what a
// caller has: a request that waits for its turn, and then a lock with an owner, entries and a
// context. One mutex protects both.
//
// A grant serves its claims one after the other, in the order in which they came, each with a token
// of its own. Claims that wait together share a place in the queue, an attempt and a grant (lock
// cohorting: Dice, Marathe and Shavit 2012). What happens to a claim while another one takes its
// turn is not told to the database. Only plain requests share a grant: see plain. Every other
// request is the only claim of its grant, as is one that did not wait.
//
// # Flow
//
//   - Request registers an attempt with its claim, before any statement is sent. Allow notes that
//     the database has given the lock, Hold that the caller relies on it.
//   - Join adds the claim to the grant that gathers for its name, and waits for its turn. For each
//     name one statement at a time is in flight. The requests that come meanwhile go with the next.
//     While claims of the session pass the name on, the next statement is held back for more.
//     While an earlier grant has the last place in the queue, that place grows, and the claims
//     become those of that grant. So all claims of a grant came before every request behind their
//     place.
//   - Drop ends a claim, and Pass lets the next one take its turn. If there is none, the caller
//     releases the lock in the database.
//   - Split makes the claim that has the lock the only one that the lock is for, in the database.
//     The claims behind it get a grant of their own, at the head of the queue.
//   - Abandon releases, in the background, the lock or the place of a grant that no claim needs.
//
// A claim ends by itself with its session (LoseSession), with its fixed lease (lease.go), when the
// database does not have the lock any more (Lose), or without progress (progress.go). When several
// claims end, all their contexts end before anything else follows (revoke).
//
// # States
//
// Ledger.move makes every transition of a grant, from before its statement is sent until nothing of
// it can be in the database any more. Ledger.happen makes every transition of a claim, with what
// follows for its grant. A transition that is not here is logged as an error, and fails the test.
//
// Of a grant:
//
//	stateDiagram-v2
//	    [*] --> Sent
//	    Sent --> Queued: queue
//	    Sent --> Granted: give
//	    Sent --> Leaving: leave
//	    Sent --> Gone: vanish
//	    Queued --> Granted: give
//	    Queued --> Leaving: leave
//	    Queued --> Gone: vanish
//	    Granted --> Uncertain: loseTrack
//	    Granted --> Leaving: leave
//	    Granted --> Gone: vanish
//	    Uncertain --> Uncertain: loseTrack
//	    Uncertain --> Granted: restore
//	    Uncertain --> Leaving: leave
//	    Uncertain --> Gone: vanish
//	    Leaving --> Uncertain: loseTrack
//	    Leaving --> Leaving: leave
//	    Leaving --> Gone: vanish
//	    Gone --> Leaving: leave
//	    Gone --> Gone: vanish
//	    Gone --> [*]
//
// Of a claim:
//
//	stateDiagram-v2
//	    [*] --> Waiting
//	    Waiting --> Held: hold
//	    Waiting --> Ended: finish
//	    Held --> Lent: lend
//	    Held --> Pledged: promise
//	    Held --> Released: unlock
//	    Held --> Ended: lose
//	    Held --> Ended: expire
//	    Lent --> Ended: finish
//	    Pledged --> Pledged: promise
//	    Pledged --> Held: rollback
//	    Pledged --> Released: commit
//	    Pledged --> Released: unlock
//	    Pledged --> Ended: lose
//	    Pledged --> Ended: expire
//	    Released --> Ended: finish
//	    Ended --> [*]
//
// A claim is found by its name and its owner while it is Held, and at no other time. UnlockTx makes
// it Pledged before its statement is sent. When that has succeeded, only the database knows whether
// the transaction has released the lock. Until Guard shows a rollback, the client expects a commit:
// a Lock of the same owner queues, and the handle is good for Guard, UnlockTx and Unlock alone.
//
// The database may not have a lock any more. Then UnlockTx has released it if one has succeeded,
// and otherwise it is lost. A statement is answered before its transaction commits, so no commit
// precedes that answer. After Unlock it is no loss either if the answer to an earlier release was
// lost (Uncertain), or if the client was releasing it in the background.
//
// The database has a lock by its Mode, which a conversion and a Split change.
package ledger
