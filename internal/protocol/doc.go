// Package protocol is the lock: every transition of a name, written once. It does no I/O and has no
// clock of its own. An engine locks the row of a name, reads it with the time, runs a transition,
// writes what the transition left in Changes, and commits. In front of that an engine may have
// short ways for common cases. A short way leaves the same rows as the transition, or does nothing.
//
// # Terms
//
// A name is what is locked. Its row shows the holder of the whole name, and counts what others
// have. A share is a part of a name, in units: a reader has one of Readers, a permit some of the
// number that it states. A place is a place in the queue of a name. A ticket orders the places. A
// cohort is a number of requests of one session that joined a queue together: one place, one
// attempt, and one grant, with a token for each member.
//
// An attempt is one request to the database. Whatever happens to its answer, the attempt tells what
// became of it: it has the name, a share, a place, or nothing. No attempt is ever sent twice.
//
// A token is the number of a grant. The tokens of a name rise in the order of grants. They rise
// above the microseconds of the database's clock too, so that they rise over a purge of the row.
//
// # States of a name
//
// A name is free; or it is held as a whole, by one attempt; or it is shared. It rests after a
// MinHold until a time: it may be held meanwhile, but not granted. Free and shared names may have a
// queue only while its first living place does not fit, or while the name rests: every transition
// that makes room hands over. Two cases are left for Remove with the cause Nothing: the end of a
// rest, which no statement marks, and a release by an application's transaction.
//
// # Who is next
//
// First come, first served. A request that fits is granted at once where nobody waits; otherwise it
// gets a place at the end. A hand-over goes along the queue in the order of tickets: it grants each
// place that fits, removes the places of dead sessions, and ends at the first living place that
// does not fit. Nothing overtakes that place. Only Upgrade and Reenter pass the queue: nobody in it
// could have the name before the share, or the owner, gives it up.
//
// # When a dead holder's lock moves
//
// A session is dead once its heartbeat is over its time and a transition has marked it so; it stays
// dead. A lock leaves a holder that has not released it in four ways: its session is dead, its
// fixed lease is over, an operator breaks it, or its owner enters it again from another session.
// Each of them seizes the guard of the hold first (Source.Seize).
//
// # What Guard may rely on
//
// A transaction that guards a hold has share-locked the guard of its attempt, which it found not
// seized. Until that transaction ends, Seize fails, and with it everything that would take the hold
// away or release it (Removal.Guarded). So a write of the transaction lands before the next grant,
// or not at all.
//
// # Order of locks
//
// Row of the name, guard, session, heartbeat, places. What waits for the row's lock decides
// afterwards, by what it reads then.
package protocol
