package cohort

// state is the stage of a cohort between its first request and the end of its grant.
type state int

const (
	gathering state = iota // requests are added until the statement of the cohort is sent
	joining                // the statement is in flight
	parked                 // the members wait behind a member that is being split off
	queued                 // the cohort has a place in the queue
	serving                // a member has the lock, and Pass gives it to the next
	splitting              // a member has the lock, and keeps it until the database knows of the split
	single                 // a member has the lock, and the database shows it as the only holder
	releasing              // no member has the lock, and its release is sent
	ended                  // the cohort has neither the lock nor a place
)

var stateNames = [...]string{
	"Gathering", "Joining", "Parked", "Queued", "Serving", "Splitting", "Single", "Releasing", "Ended",
}

func (s state) String() string { return stateNames[s] }

// event changes the state of a cohort.
type event int

const (
	send    event = iota // the statement of the cohort is about to be sent
	queue                // the database has a place for the cohort
	grant                // the database granted the lock to the cohort
	fail                 // the cohort has no place, or its outcome is unknown: its members get the error
	vacate               // all members gave up while they waited
	pass                 // the next member gets the lock
	split                // a statement is to make the member that has the lock its only holder
	settle               // the member that has the lock is its only holder in the database
	release              // no member follows the one that had the lock
	leave                // the lock was released or lost
)

var eventNames = [...]string{
	"send", "queue", "grant", "fail", "vacate", "pass", "split", "settle", "release", "leave",
}

func (e event) String() string { return eventNames[e] }

// transitions are all possible transitions.
var transitions = map[state]map[event]state{
	gathering: {send: joining},
	joining:   {queue: queued, grant: serving, fail: ended, vacate: ended},
	parked:    {queue: queued, grant: serving, fail: ended, vacate: ended},
	queued:    {grant: serving, fail: ended, vacate: ended},
	serving:   {pass: serving, split: splitting, settle: single, release: releasing, leave: ended},
	splitting: {settle: single, leave: ended},
	single:    {release: releasing, leave: ended},
	releasing: {leave: ended},
}

// move makes a transition, and returns false where that is not possible. MUST be called with mu
// locked.
func (c *cohort) move(e event) bool {
	next, possible := transitions[c.state][e]
	if possible {
		c.state = next
	}
	return possible
}
