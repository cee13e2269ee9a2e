package driver

import "time"

// Session is one live client. Its locks end with it.
type Session struct {
	ID   string // unguessable, at most 32 ASCII letters and digits
	Host string
	PID  int
	App  string
	TTL  time.Duration
}

// State is a name as one session sees it.
type State struct {
	Name     string
	Holder   Holder        // of several that share the name, the one that expires first; the zero value: no holder
	Sharing  int           // how many holders share the name
	Used     int           // the units that they hold
	Capacity int           // the smallest number of units that a holder states, while the name has shares or waiters; 0: not known
	Waiters  int           // requests in the queue: the members of all places
	Queued   []string      // the session's own attempts among them
	Granted  []OwnGrant    // the session's own grants of the name, in the order of their tokens
	Head     Holder        // the first waiter, where Sharing > 0: if it is dead, it blocks the waiters behind it
	Rest     time.Duration // what is left of the cool-down (MinHold), during which the name is not granted; ≤ 0: over
	Database string        // of LockTx, where it has locked the row: that of its transaction; "" where it is not told
	Ready    bool          // the first waiter fits and has not been granted the name: TakeOver does that
}

// OwnGrant is a grant to one of the session's own attempts.
type OwnGrant struct {
	Attempt string
	Grant   Grant
}

// Attempt is a session's lock or place in a queue.
type Attempt struct {
	Name    string
	Attempt string
	Token   int64  // 0: queued
	Asked   string // the reason that Ask was given; "": nobody asked
}
