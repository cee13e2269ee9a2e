// Package protocol has every transition of a lock's name, written once. It has no clock, and does
// no I/O but through Source. An engine locks the row of a name, reads it with the time, runs a
// transition, writes the changed row and the Changes, and commits; after an error it rolls back,
// and discards the Name. In front of that an engine may have short ways for common cases. A short
// way leaves the same rows as the transition, or does nothing.
//
// # Terms
//
// A name is the thing that is locked. Its row shows the holder of the whole name, and counts shares
// and waiters. A share is a part of a name, in units: a reader has one of Readers, a request for
// permits takes Units of Of. A hold is the whole name or a share, in the hands of a holder. A place
// is a place in the queue of a name. A ticket orders the places. A cohort is a number of requests
// of one session that joined a queue together: one place, one attempt, and one grant, with a token
// for each member.
//
// A session is a client that a heartbeat keeps alive. An owner is a host and a thread, which may
// have had several sessions. A fixed lease ends a hold at its time, also while its session lives.
//
// An attempt is one request to the database. Even if its answer is lost, the attempt identifies its
// outcome: it has the name, a share, a place, or nothing. No attempt is ever sent twice.
//
// A token is the number of a grant. The tokens of a name rise in the order of grants. A token is
// never below the microseconds of the database's clock at its grant, so that tokens also rise when
// the row is purged and made anew. The purge keeps a row whose token is ahead of the clock.
//
// # States of a name
//
// A name is free; or it is held as a whole, by one attempt; or it is shared. After a grant with a
// MinHold the name rests for that time, held or not: no waiter, and no other owner, is granted it
// meanwhile. A name that is not held as a whole has a queue only while the first living place in it
// does not fit, or while the name rests: every transition that makes room hands over. Three cases
// are left for a later Removal, whose cause may be Nothing: the end of a rest, a release by an
// application's transaction, and the death of the first waiter.
//
// # Order of grants
//
// First come, first served. A request that fits is granted at once if the name has no waiters;
// otherwise it gets a place at the end. A hand-over goes along the queue in the order of tickets:
// it grants each place that fits, removes the places of dead and expired sessions, and ends at the
// first living place that does not fit. Nothing overtakes that place. Three transitions pass the
// queue. Upgrade and Reenter do, because the queue could not have the name before the share, or the
// owner, releases it. The place that Detach puts at the head had the name already, as a cohort.
//
// # When a dead holder's lock moves
//
// A session is dead once it is marked dead, and stays dead. A transition marks it when its lease
// has expired. Bury of the driver marks it before that, when its process has ended and another one
// on its host has seen that (package crash). A lock leaves a holder that has not released it in
// five cases: the lease of its session has expired, its process has ended on its host and that was
// seen, its fixed lease has expired, an operator breaks it, or its owner enters it again from
// another session. Each of them seizes the guard of the hold first (Source.Seize).
//
// No lock moves by itself: a client runs the Removal of TakeOver, which marks the session dead,
// removes the hold, and hands over, in one transaction. The first waiter does so when the holder's
// lease has expired, whose end it knows. So does a TryLock that finds such a holder. The reaper of
// any client does so for names without waiters. Other names of the same session each need a removal
// of their own. A client that buries a session runs them.
//
// # Guards
//
// A transaction that guards a hold has share-locked the guard of its attempt, and has found it not
// seized. Until that transaction ends, Seize fails, and so does every transition that would take
// the hold away, or release it (Removal.Guarded). So a write of the transaction lands before the
// grant that comes after the hold, or not at all. The first guard of a hold is made under the lock
// of the name's row: a transition that found no guard has ended by then. Two transitions leave the
// hold to its holder, and do not seize: Downgrade lets readers in beside a guarded transaction, as
// its holder asked, and Detach keeps the lock with the member that has it.
//
// # Order of locks
//
// The row of the name is locked first. A transaction that waits for that row decides afterwards, by
// the state that it reads then. All other rows are locked without waiting (Source.Seize,
// Source.Expire), or no other transaction locks them meanwhile.
package protocol
