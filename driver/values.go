package driver

import (
	"math"
	"time"
)

// Readers is the capacity of a name that is read and written: a reader takes one unit of it, a
// writer all.
const Readers = math.MaxInt32

// Session is one live client. Everything it holds dies with it.
type Session struct {
	ID   string // unguessable, at most 32 ASCII letters and digits
	Host string
	PID  int
	App  string
	TTL  time.Duration
}

// Request is one attempt to get a lock. An attempt is sent once and never again: whatever happens
// to the statement, its outcome can be found out by Attempt.
type Request struct {
	Name     string
	Session  string
	Host     string // with Thread: the owner, for reentrancy
	Thread   string
	Attempt  string        // unguessable, at most 32 ASCII letters and digits
	Lease    time.Duration // a fixed lease from the grant on; 0: as long as the session lives
	Metadata string        // JSON object, "" for none
	MinHold  time.Duration // from the grant on, nobody else gets the name before this is over; exclusive requests only
	Units    int           // 0: the whole name, alone; else so many units of it, shared
	Of       int           // with Units: how many there are
	Wait     bool          // false: the caller wants an answer at once, ErrBusy where an open transaction is in the way
}

// Outcome is what became of an Enqueue.
type Outcome int

const (
	Gone    Outcome = iota // there is nothing to wait for: nothing was done
	Queued                 // the attempt waits
	Granted                // the attempt holds the lock
)

// Grant is a lock that was given.
type Grant struct {
	Token     int64
	Contended bool          // others wait for the name
	Lease     time.Duration // what was left of a fixed lease when the statement ran; 0: no fixed lease
}

// Held names a lock as its holder knows it. Both session and token must match.
type Held struct {
	Name    string
	Session string
	Token   int64
	Shared  bool // it is a share, and not the whole name
}

// Handoff says to whom a lock went. The zero value: to nobody.
type Handoff struct {
	Session string
	Attempt string
	Grant   Grant
}

// Hint is what a listener heard. Grant is there, with its token, where the hint comes from the
// committed grant itself and nothing in it has to be counted from the moment when the statement
// ran; otherwise it must be looked up.
type Hint struct {
	Attempt string // "" where the hint does not tell
	Grant   Grant
}

// State is a name as one session sees it.
type State struct {
	Name     string
	Holder   Holder        // of several that share the name, the one whose time is over first; the zero value: nobody
	Sharing  int           // how many holders share the name
	Used     int           // units that they have of it
	Capacity int           // how many units there are, while somebody shares the name or waits; 0: nobody has said
	Waiters  int           // places in the queue
	Queued   []string      // the session's own attempts among them
	Granted  []Own         // what the session itself has of the name
	Head     Holder        // the first in the queue, where Sharing > 0: if it is dead, those behind it wait for nobody
	Rest     time.Duration // how long nobody gets the name for the sake of MinHold; ≤ 0: over
	Ready    bool          // the first in the queue could have the name, and nobody has handed it on: Reclaim does
}

// Own is a grant to one of the session's own attempts.
type Own struct {
	Attempt string
	Grant   Grant
}

// Holder is who holds a name.
type Holder struct {
	Session string
	Host    string
	Thread  string
	Attempt string
	Units   int           // 0: it has the whole name
	Grant   Grant         // its token; what is left of its fixed lease (never 0 where there is one: -1ns when over)
	Since   time.Time     // by the database's clock
	Left    time.Duration // how long it can go on without a sign of life: until session or fixed lease end; ≤ 0: over
}

// WithFixedLease is the holder of a fixed lease of which so much is left. It ends with that or with
// its session, whichever is first.
func (h Holder) WithFixedLease(left time.Duration) Holder {
	h.Left = min(h.Left, left)
	h.Grant.Lease = left
	if left <= 0 {
		h.Grant.Lease = -1
	}
	return h
}

// Claim is a lock that a session holds, or a place that it has in a queue.
type Claim struct {
	Name    string
	Attempt string
	Token   int64  // 0: queued
	Asked   string // held, and somebody has asked for it: why, as Ask was told
}
