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
	hold   *Hold         // Held, ReleasingTx, ReleasedTx, Overdue: the hold of the attempt
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
	ReleasingTx       // UnlockTx was called: its transaction releases the lock, or has, or was rolled back
	ReleasedTx        // the database says that UnlockTx has released the lock; its context is open until Unlock
	Settling          // Unlock was called after UnlockTx: it releases the lock, unless the transaction did
	Gone              // nothing of the attempt is in the database
)

var stateNames = [...]string{
	"requested", "held", "lent", "releasing", "undoing", "overdue", "released if a transaction commits",
	"released by a transaction", "settling", "gone",
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
	ReleaseTx              // UnlockTx is about to release the lock in a transaction
	Rollback               // the statement of UnlockTx failed, or its transaction was rolled back
	Commit                 // the transaction of UnlockTx was committed
	Finish                 // nothing of the attempt is in the database any more
)

var eventNames = [...]string{
	"grant", "pass", "lend", "unlock", "abandon", "lose", "expire", "releaseTx", "rollback", "commit", "finish",
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
		Unlock: Settling, Lose: Gone, Expire: Overdue, ReleaseTx: ReleasingTx, Rollback: Held, Commit: ReleasedTx,
	},
	ReleasedTx: {Unlock: Gone, Finish: Gone},
	Settling:   {Abandon: Undoing, Finish: Gone},
	Gone:       {Abandon: Undoing, Finish: Gone},
}

// after returns the state after an event; false: the event is impossible in this state.
func (s State) after(e Event) (State, bool) {
	next, possible := transitions[s][e]
	return next, possible
}

// hasHold reports whether an attempt in this state has a hold.
func (s State) hasHold() bool {
	return s == Held || s == ReleasingTx || s == ReleasedTx || s == Overdue
}
