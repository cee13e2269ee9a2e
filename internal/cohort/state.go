package cohort

// state is where a cohort is between its first request and the end of its grant.
type state int

const (
	gathering state = iota // requests are added until the statement of the cohort is sent
	joining                // the statement is in flight
	parked                 // the members wait behind one that is split off
	queued                 // the cohort has a place in the queue
	serving                // a member has the lock, and Pass gives it to the next
	splitting              // a member has the lock, and keeps it until the split is known to the database
	single                 // a member has the lock, and the database shows it as the only holder
	releasing              // no member has the lock, and the database is told
	ended                  // the cohort has neither the lock nor a place
)

var stateNames = [...]string{
	"Gathering", "Joining", "Parked", "Queued", "Serving", "Splitting", "Single", "Releasing", "Ended",
}

func (s state) String() string { return stateNames[s] }

// event is what happens to a cohort.
type event int

const (
	send    event = iota // the statement of the cohort is about to be sent
	queue                // the database has a place for it
	grant                // the database granted it the lock
	fail                 // it has no place, or the outcome is unknown: its members are told why
	vacate               // all members gave up while they waited
	pass                 // the next member gets the lock
	split                // the member that has the lock is to be shown as the only holder
	settle               // the database shows that
	release              // no member follows the one that had the lock
	leave                // the lock was released or lost
)

var eventNames = [...]string{
	"send", "queue", "grant", "fail", "vacate", "pass", "split", "settle", "release", "leave",
}

func (e event) String() string { return eventNames[e] }

// transitions are all that are possible.
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

// move makes a transition, and returns false where it is not possible. MUST be called with mu
// locked.
func (c *cohort) move(e event) bool {
	next, possible := transitions[c.state][e]
	if possible {
		c.state = next
	}
	return possible
}
