package driver

import (
	"time"

	"github.com/dblock-go/dblock/internal/protocol"
)

// Session is one live client. Its locks end with it.
type Session struct {
	ID   string // unguessable, at most 32 ASCII letters and digits
	Host string
	PID  int
	App  string
	TTL  time.Duration

	// First is set for the first session of a client: the engine then refuses triggers on its
	// tables with ErrConfig.
	First bool
	// Detached is set for the session of a detached lock: the engine keeps no connections for it,
	// and has opened another session of the same client before.
	Detached bool
}

// State is a name as one session sees it.
type State struct {
	Name    string
	Seen    time.Time       // when the database's answer came, by this machine's clock
	Token   int64           // the highest token granted
	Holder  protocol.Holder // of several, the one that expires first; the zero value: no holder
	Sharing int             // the number of holders that share the name
	Used    int             // the units that they hold
	// the smallest number that a holder states, while there are shares or waiters; 0: not known
	Capacity int
	Waiters  int             // requests in the queue: the members of all places
	Queued   []string        // the session's own attempts among them
	Granted  []OwnGrant      // the session's own grants of the name, in the order of their tokens
	Head     protocol.Holder // the first waiter, where Sharing > 0: a dead one blocks those behind it
	Rest     time.Duration   // the time for which the name is still not granted after a release (MinHold); ≤ 0: none
	Ready    bool            // the first waiter fits and has not been granted the name: TakeOver does that

	Holders []Participant // of Read with waiters: all holders, in the order of their tokens
	Queue   []Participant // of Read with waiters: up to so many, the first of the queue in its order

	Database string // of LockTx, where it has locked the row: that of its transaction; "" where it is not known
}

// Row returns what the row of the name says of requests. The present time is 0.
func (s State) Row() protocol.Row {
	row := protocol.Row{
		Name: s.Name, Units: s.Used, Capacity: s.Capacity, Waiters: s.Waiters, Rests: s.Rest.Microseconds(),
	}
	if s.Sharing == 0 {
		row.Session = s.Holder.Session
	}
	return row
}

// Until returns when a holder or a waiter of the name expires without another heartbeat, by this
// machine's clock. The database does not know when a session expired: one that had expired when the
// name was read ends at that moment.
func (s State) Until(h protocol.Holder) time.Time { return s.Seen.Add(max(h.Left, 0)) }

// Participant is a holder or a waiter of a name.
type Participant struct {
	protocol.Holder        // of a waiter: no token, the time since when it waits, and the rest of its session
	App             string // of its session
	PID             int
	Metadata        string // a JSON object, "" for none
	Asked           string
	Buried          string // why its session was buried (Sessions.Bury); "": it was not
}

// OwnGrant is a grant to one of the session's own attempts.
type OwnGrant struct {
	Attempt string
	Grant   protocol.Grant
}

// Claim is a session's lock or place in a queue.
type Claim struct {
	Session string
	Name    string
	Attempt string
	Token   int64  // 0: queued
	Asked   string // the reason of the latest Ask; "": there was none
}
