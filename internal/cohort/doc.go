// Package cohort lets the requests of a client wait for locks, and passes locks on in memory (lock
// cohorting: Dice, Marathe and Shavit 2012).
//
// Each request that waits is a member of a cohort. The members of a cohort share one place in the
// queue of a name, one attempt and one grant. They get the lock one after the other, in the order
// in which they came, each with a token of its own. Only plain requests share a place: see plain.
// Every other request is a cohort of one.
//
// # Flow
//
//   - Join adds a request to the cohort that gathers for its name, and waits for its turn. For each
//     name one statement at a time is in flight. The requests that come meanwhile go with the next,
//     so all members of a cohort came before every request behind their place.
//   - Pass gives the lock to the next member. If there is none, the caller releases the lock in the
//     database.
//   - Leave ends the cohort of a member that has released or lost the lock. The members behind a
//     lost lock get ErrAgain.
//   - Split makes the member that has the lock its only holder in the database, under the attempt
//     of the cohort. The members behind it become a cohort of their own, at the head of the queue.
//
// # States
//
// A cohort is in one state. An event that is not in this table changes nothing: it is a second
// answer, or one that comes too late. A test compares the table with the code.
//
//	stateDiagram-v2
//	    [*] --> Gathering
//	    [*] --> Parked
//	    Gathering --> Joining: send
//	    Joining --> Queued: queue
//	    Joining --> Serving: grant
//	    Joining --> Ended: fail
//	    Joining --> Ended: vacate
//	    Parked --> Queued: queue
//	    Parked --> Serving: grant
//	    Parked --> Ended: fail
//	    Parked --> Ended: vacate
//	    Queued --> Serving: grant
//	    Queued --> Ended: fail
//	    Queued --> Ended: vacate
//	    Serving --> Serving: pass
//	    Serving --> Splitting: split
//	    Serving --> Single: settle
//	    Serving --> Releasing: release
//	    Serving --> Ended: leave
//	    Splitting --> Single: settle
//	    Splitting --> Ended: leave
//	    Single --> Releasing: release
//	    Single --> Ended: leave
//	    Releasing --> Ended: leave
//	    Ended --> [*]
//
// Parked is the cohort that Split made of the members behind the one that has the lock, until it is
// known whether the database has their place.
package cohort
