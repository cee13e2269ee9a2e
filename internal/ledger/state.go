package ledger

import "sync/atomic"

// Attempt is one request of this client to the database. The members of a cohort have one attempt
// in turn. The ledger's mutex protects its unexported fields.
type Attempt struct {
	Name, ID string
	// Guarded is set when a transaction may have guarded the hold: its release waits for the end of
	// the transaction.
	Guarded atomic.Bool
	// Guardable is set when Guard's row of this hold was made.
	Guardable atomic.Bool

	asked  string // the reason of an Ask that was passed on: it is for one member of a cohort
	state  State
	hold   *Hold         // the hold of the attempt, in the states that have one
	tx     any           // Lent: identifies the transaction; nil until that has locked the row
	undone chan struct{} // Undoing: closed when nothing of the attempt is in the database

	begun, answered int // the number of UnlockTx calls that were begun, and of those that the database has answered
}

// State is the stage of an attempt, as far as the client knows, from before its statement is sent
// until nothing of it can be in the database any more.
type State int

// The states.
const (
	// Requested: a statement may take the lock, or a place in the queue. No member of a cohort
	// relies on the lock.
	Requested   State = iota
	Held              // the client relies on the lock
	Lent              // the lease stands behind the lock of a transaction
	Releasing         // the lock counts as released, and its release is sent
	Undoing           // in the background, the client releases the lock or place of the attempt
	Overdue           // the fixed lease has expired here, and the database may still have it
	ReleasingTx       // the statement of an UnlockTx is in flight, and none has succeeded
	AwaitingTx        // an UnlockTx has succeeded: its transaction releases the lock, or has, or was rolled back
	ReleasedTx        // the database says that UnlockTx has released the lock; its context is open until Unlock
	Overtaking        // Unlock was called in ReleasingTx: it releases the lock before UnlockTx does
	Settling          // Unlock was called after an UnlockTx that succeeded: it releases the lock, unless that did
	Gone              // nothing of the attempt is in the database
)

var stateNames = [...]string{
	"requested", "held", "lent", "releasing", "undoing", "overdue", "being released in a transaction",
	"released if a transaction commits", "released by a transaction", "overtaking", "settling", "gone",
}

func (s State) String() string { return stateNames[s] }

// Event happens to an attempt.
type Event int

// The events.
const (
	Grant     Event = iota // the database granted the lock, and the client relies on that
	Pass                   // the next member of the cohort gets the lock
	Lend                   // a transaction gets the name that the lease was acquired for
	Unlock                 // Unlock, UnlockAll or Close
	Abandon                // no caller relies on the attempt any more, and the database may have it
	Lose                   // the lock ended, and was not unlocked
	Expire                 // the same, by the end of a fixed lease
	ReleaseTx              // UnlockTx is about to send its statement
	Await                  // the statement of UnlockTx succeeded
	Rollback               // every UnlockTx failed, or the transaction of one that succeeded was rolled back
	Commit                 // the transaction of UnlockTx was committed
	Finish                 // nothing of the attempt is in the database any more
)

var eventNames = [...]string{
	"grant", "pass", "lend", "unlock", "abandon", "lose", "expire", "releaseTx", "await", "rollback", "commit",
	"finish",
}

func (e Event) String() string { return eventNames[e] }

// transitions are all possible transitions.
var transitions = map[State]map[Event]State{
	Requested: {Grant: Held, Abandon: Undoing, Finish: Gone},
	Held:      {Lend: Lent, Unlock: Releasing, Lose: Gone, Expire: Overdue, ReleaseTx: ReleasingTx},
	Lent:      {Abandon: Undoing, Finish: Gone},
	Releasing: {Pass: Requested, Abandon: Undoing, Finish: Gone},
	Undoing:   {Abandon: Undoing, Finish: Gone},
	Overdue:   {Finish: Gone},
	ReleasingTx: {
		Unlock: Overtaking, Lose: Gone, Expire: Overdue, ReleaseTx: ReleasingTx, Await: AwaitingTx, Rollback: Held,
	},
	AwaitingTx: {
		Unlock: Settling, Lose: Gone, Expire: Overdue, ReleaseTx: AwaitingTx, Await: AwaitingTx, Rollback: Held,
		Commit: ReleasedTx,
	},
	ReleasedTx: {Unlock: Gone, Finish: Gone},
	Overtaking: {Await: Settling, Abandon: Undoing, Finish: Gone},
	Settling:   {Await: Settling, Abandon: Undoing, Finish: Gone},
	Gone:       {Abandon: Undoing, Finish: Gone},
}

// after returns the state after an event; false: the event is impossible in this state.
func (s State) after(e Event) (State, bool) {
	next, possible := transitions[s][e]
	return next, possible
}

// claimed reports whether the database has the hold of an attempt in this state, as far as the
// client knows.
func (s State) claimed() bool { return s == Held || s.inTx() }

// inTx reports whether UnlockTx may release the hold of an attempt in this state.
func (s State) inTx() bool { return s == ReleasingTx || s == AwaitingTx }

// hasHold reports whether an attempt in this state has a hold.
func (s State) hasHold() bool { return s.claimed() || s == ReleasedTx || s == Overdue }
