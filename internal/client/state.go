package client

import "sync/atomic"

// attempt is an attempt of this client's. The registry's mutex protects its state.
type attempt struct {
	name     string
	id       string
	state    State
	guarded  atomic.Bool     // a transaction may have guarded it: it is released once that has ended
	tx       any             // Lent: what identifies the transaction, nil until that has the row
	answered <-chan struct{} // Undoing: closed when the statement for it is answered; nil: it is
	undone   chan struct{}   // Undoing: closed when it is over
}

// State is what an attempt of this client's is, as far as the client knows: from before its
// statement is sent until nothing of it can be in the database any more.
type State int

// The states.
const (
	Requested   State = iota // a statement was or will be sent that may take the lock or a place in the queue; of a cohort, nobody relies on it yet
	Held                     // it has the lock
	Lent                     // its lease stands behind the lock of a transaction
	Releasing                // it counts as released, and the database is told
	Undoing                  // the client gives back, in the background, whatever the attempt has got
	Overdue                  // its fixed lease is over here, and the database may still have it
	ReleasingTx              // UnlockTx was called: its transaction releases it, or has, or was rolled back
	ReleasedTx               // the database says that UnlockTx has released it, and its context is open until Unlock
	Settling                 // it was unlocked after UnlockTx: it counts as released, and the database is told unless it knows
	Gone                     // nothing is left of it
)

var stateNames = [...]string{
	"requested", "held", "lent", "releasing", "undoing", "overdue", "released if a transaction commits", "released by a transaction", "settling", "gone",
}

func (s State) String() string { return stateNames[s] }

// event is what happens to an attempt.
type event int

const (
	grant     event = iota // the database granted it, and the client relies on that
	pass                   // the next member of its cohort may have it
	lend                   // a transaction gets what the lease stands for
	unlock                 // Unlock, UnlockAll or Close
	abandon                // nobody relies on it any more, and the database may have it
	lose                   // the lock ended, and was not unlocked
	expire                 // likewise, by the end of a fixed lease
	releaseTx              // UnlockTx is about to release it in a transaction
	rollback               // that did not happen, or was rolled back
	commit                 // the database does not have it any more
	finish                 // nothing of it is in the database any more
)

var eventNames = [...]string{"grant", "pass", "lend", "unlock", "abandon", "lose", "expire", "releaseTx", "rollback", "commit", "finish"}

func (e event) String() string { return eventNames[e] }

// transitions are all that are possible.
var transitions = map[State]map[event]State{
	Requested:   {grant: Held, abandon: Undoing, finish: Gone},
	Held:        {lend: Lent, unlock: Releasing, lose: Gone, expire: Overdue, releaseTx: ReleasingTx},
	Lent:        {abandon: Undoing, finish: Gone},
	Releasing:   {pass: Requested, abandon: Undoing, finish: Gone},
	Undoing:     {abandon: Undoing, finish: Gone},
	Overdue:     {finish: Gone},
	ReleasingTx: {unlock: Settling, lose: Gone, expire: Overdue, releaseTx: ReleasingTx, rollback: Held, commit: ReleasedTx},
	ReleasedTx:  {unlock: Gone, finish: Gone},
	Settling:    {abandon: Undoing, finish: Gone},
	Gone:        {abandon: Undoing, finish: Gone},
}

// after is the state that an event leads to; false: the event is impossible in this state.
func (s State) after(e event) (State, bool) {
	next, possible := transitions[s][e]
	return next, possible
}
