// Package protocol is the lock: every transition of a name, written once. It has no clock, and does
// no I/O but through Source. An engine locks the row of a name, reads it with the time, runs a
// transition, writes what the transition left in the row and in Changes, and commits; after an
// error it rolls back, and discards the Name. In front of that an engine may have short ways for
// common cases. A short way leaves the same rows as the transition, or does nothing.
//
// # Terms
//
// A name is what is locked. Its row shows the holder of the whole name, and counts what others
// have. A share is a part of a name, in units: a reader has one of Readers, a request for permits
// takes Units of Of. A hold is what a holder has: the whole name or a share. A place is a place in
// the queue of a name. A ticket orders the places. A cohort is a number of requests of one session
// that joined a queue together: one place, one attempt, and one grant, with a token for each
// member.
//
// A session is a client that a heartbeat keeps alive. An owner is a host and a thread, which may
// have had several sessions. A fixed lease ends a hold at a time, whatever its session does.
//
// An attempt is one request to the database. Whatever happens to its answer, the attempt tells what
// became of it: it has the name, a share, a place, or nothing. No attempt is ever sent twice.
//
// A token is the number of a grant. The tokens of a name rise in the order of grants, and are never
// below the microseconds of the database's clock, so that they rise over a purge of the row: the
// purge leaves a row whose token is ahead of the clock.
//
// # States of a name
//
// A name is free; or it is held as a whole, by one attempt; or it is shared. A grant with a MinHold
// has the name rest from then on for that time, held or not: no waiter, and no other owner, is
// granted it meanwhile. A name that is not held as a whole has a queue only while the first living
// place in it does not fit, or while the name rests: every transition that makes room hands over.
// Three cases are left for a later Remove, whose cause may be Nothing: the end of a rest, a release
// by an application's transaction, and the death of the one who is first.
//
// # Who is next
//
// First come, first served. A request that fits is granted at once where nobody waits; otherwise it
// gets a place at the end. A hand-over goes along the queue in the order of tickets: it grants each
// place that fits, removes the places of sessions that are dead or over their time, and ends at the
// first living place that does not fit. Nothing overtakes that place. Only Upgrade and Reenter pass
// the queue, which could not have the name before the share, or the owner, gives it up; and what
// Detach puts back at its head had the name already, as a cohort.
//
// # When a dead holder's lock moves
//
// A session is dead once its heartbeat is over its time and a transition has marked it so; it stays
// dead. A lock leaves a holder that has not released it in four ways: its session is dead, its
// fixed lease is over, an operator breaks it, or its owner enters it again from another session.
// Each of them seizes the guard of the hold first (Source.Seize).
//
// Nothing moves by itself: somebody calls Remove with TakeOver, which marks the session, takes the
// hold off, and hands over, in one transaction. The first who waits does so when the holder's time
// is over, of which it was told; so does a TryLock that finds such a holder, and the reaper of any
// client for what nobody waits for. Other names of the same session each need a removal of their
// own.
//
// # What Guard may rely on
//
// A transaction that guards a hold has share-locked the guard of its attempt, which it found not
// seized. Until that transaction ends, Seize fails, and with it what would take the hold away, or
// release it (Removal.Guarded). So a write of the transaction lands before the grant that comes
// after the hold, or not at all. The first guard of a hold is made under the lock of the name's
// row: a transition that found none has ended by then. Two transitions leave the hold to its
// holder, and do not seize: Downgrade lets readers in beside a guarded transaction, as its holder
// asked, and Detach takes nothing from the member that has the lock.
//
// # Order of locks
//
// The row of the name is locked first. What waits for it decides afterwards, by what it reads then.
// All else is locked without waiting (Source.Seize, Source.Expire), or by nobody else meanwhile.
package protocol
