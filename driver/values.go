package driver

import (
	"math"
	"time"
)

// Readers is the capacity of a name with readers and writers. A reader takes one unit, a writer
// takes all. Any other capacity is that of a semaphore.
const Readers = math.MaxInt32

// Session is one live client. Its locks end with it.
type Session struct {
	ID   string // unguessable, at most 32 ASCII letters and digits
	Host string
	PID  int
	App  string
	TTL  time.Duration
}

// MaxRun is how many grants a run has at most.
const MaxRun = 64

// Request is one attempt to get a lock. An attempt is sent only once. Whatever happens to the
// statement, Attempt tells its outcome.
type Request struct {
	Name     string
	Session  string
	Host     string // with Thread: the owner, for reentrancy
	Thread   string
	Attempt  string        // unguessable, at most 32 ASCII letters, digits and dots
	Lease    time.Duration // a fixed lease from the grant on; 0: as long as the session lives
	Metadata string        // JSON object, "" for none
	MinHold  time.Duration // from the grant on; the name is granted to no other owner before this is over; exclusive requests only
	Units    int           // 0: the whole name, exclusive; otherwise a share of so many units
	Of       int           // with Units: how many there are, as the request states it; see Locks
	Passable bool          // the grant may be part of a run; whole names only, without Lease, MinHold and Metadata
	Wait     bool          // false: return at once, with ErrBusy where an open transaction is in the way
}

// Outcome is what became of an Enqueue.
type Outcome int

const (
	Gone    Outcome = iota // nothing was done, since there is nothing to wait for
	Queued                 // the attempt waits
	Granted                // the attempt holds the lock
)

// Grant is a lock that was granted.
type Grant struct {
	Token     int64
	Contended bool          // the name has waiters
	Lease     time.Duration // what was left of a fixed lease when the statement ran; 0: no fixed lease
	Run       Range         // the run that it is part of; the zero value: it is of no run
}

// Range are the tokens of a run, from the first to the last.
type Range struct{ First, Last int64 }

// Has reports whether a token is one of them.
func (r Range) Has(token int64) bool { return r.First <= token && token <= r.Last }

// Held names a lock as its holder knows it. Both session and token must match.
type Held struct {
	Name    string
	Session string
	Token   int64
	Shared  bool // a share, not the whole name
}

// Handoff is a grant to a waiter. The zero value: no grant.
type Handoff struct {
	Session string
	Attempt string
	Grant   Grant
}

// Hint is a notification to a listener. Grant is set, with its token, where the hint comes from the
// committed grant itself and no time in it counts from the moment when the statement ran. Otherwise
// the grant must be looked up.
type Hint struct {
	Attempt string // "" if unknown
	Grant   Grant
	Behind  []string // the attempts behind it in its run, in the order of their tokens, each of which is one higher
}

// Grants are the attempt's and those of its run.
func (h Hint) Grants() []Own {
	grant := h.Grant
	if len(h.Behind) > 0 {
		grant.Run = Range{First: grant.Token, Last: grant.Token + int64(len(h.Behind))}
	}
	own := []Own{{Attempt: h.Attempt, Grant: grant}}
	for _, attempt := range h.Behind {
		grant.Token++
		own = append(own, Own{Attempt: attempt, Grant: grant})
	}
	return own
}

// State is a name as one session sees it.
type State struct {
	Name     string
	Holder   Holder        // of several that share the name, the one that expires first; the zero value: no holder
	Sharing  int           // how many holders share the name
	Used     int           // the units that they hold
	Capacity int           // the smallest number of units that a holder states, while the name has shares or waiters; 0: not known
	Waiters  int           // places in the queue
	Queued   []string      // the session's own attempts among them; no members of a run
	Granted  []Own         // the session's own grants of the name, and all members of its run, in the order of their tokens
	Head     Holder        // the first waiter, where Sharing > 0: if it is dead, it blocks the waiters behind it
	Rest     time.Duration // what is left of the cool-down (MinHold), during which the name is not granted; ≤ 0: over
	Database string        // of LockTx, where it has locked the row: that of its transaction; "" where it is not told
	Ready    bool          // the first waiter fits and has not been granted the name: TakeOver does that
}

// Own is a grant to one of the session's own attempts.
type Own struct {
	Attempt string
	Grant   Grant
}

// Holder is a holder of a name.
type Holder struct {
	Session string
	Host    string
	Thread  string
	Attempt string
	Units   int           // 0: the whole name
	Grant   Grant         // its token, and what is left of its fixed lease (-1ns when that is over, since 0 means no fixed lease)
	Since   time.Time     // by the database's clock
	Left    time.Duration // until its session or its fixed lease ends, without another heartbeat; ≤ 0: over
}

// WithFixedLease returns the holder with what is left of its fixed lease. It expires with that
// lease or with its session, whichever is first.
func (h Holder) WithFixedLease(left time.Duration) Holder {
	h.Left = min(h.Left, left)
	h.Grant.Lease = left
	if left <= 0 {
		h.Grant.Lease = -1
	}
	return h
}

// Claim is a session's lock or place in a queue.
type Claim struct {
	Name    string
	Attempt string
	Token   int64  // 0: queued; of a member of a run: its own
	Asked   string // the reason that Ask was given; "": nobody asked
}
