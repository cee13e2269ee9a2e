package protocol

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
)

// Readers is the capacity of a name with readers and writers. A reader takes one unit, a writer
// takes all. Any other capacity is that of a semaphore.
const Readers = math.MaxInt32

// The errors of transitions.
var (
	// ErrNotHeld: the given session does not hold the name with the given token.
	ErrNotHeld = errors.New("not held by this client and token")

	// ErrCapacity: readers and permits do not share a name. The latest requests decide: where a
	// writer holds the name and another waits, readers that were before them still count.
	ErrCapacity = errors.New("readers and permits do not share a name")

	// ErrBusy: another transaction has locked a row that is needed. Nothing is done.
	ErrBusy = errors.New("another transaction has locked the row")

	// ErrRetry: the rows that were read contradict each other, or a race was lost. Nothing is done.
	ErrRetry = errors.New("the transaction lost a race: roll it back and run it again")

	// ErrGuarded is joined to ErrBusy: a transaction that guards the hold is open.
	ErrGuarded = errors.New("a transaction that the holder guards is still open")
)

// Request is one attempt to get a lock. An attempt is sent only once. Even if the answer of the
// statement is lost, Attempt identifies its outcome.
type Request struct {
	Name     string
	Session  string
	Host     string // with Thread: the owner, for reentrancy; of a cohort, its first member
	Thread   string
	Attempt  string        // unguessable, at most 32 ASCII letters, digits and dots
	Members  int           // of a cohort, which takes the whole name; 0 is 1
	Lease    time.Duration // a fixed lease from the grant on; 0: as long as the session lives
	Metadata string        // JSON object, "" for none
	// MinHold counts from the grant. Until it has elapsed, the name is granted to no other owner.
	// For whole names only.
	MinHold time.Duration
	Units   int  // 0: the whole name, exclusive; otherwise a share of so many units
	Of      int  // with Units: the number of units that the request states; Units ≤ Of
	Patient bool // false: no statement waits for a row that an open transaction has locked (ErrBusy)
	// Candidate is set of a request that stands for election: Attempt is that of a candidacy.
	Candidate bool
}

// candidacy begins the attempts of candidates, and no others: those begin with a random text in
// capital letters and digits. It is part of statements and views.
const candidacy = "candidate"

// longest is the width of the columns of attempts.
const longest = 32

// Candidacy makes the attempt of a candidate of one that is requested under no lock.
func Candidacy(attempt string) string {
	attempt = candidacy + attempt
	return attempt[:min(len(attempt), longest)]
}

// Candidate reports whether an attempt is that of a candidate (package election). A candidate waits
// for as long as another one leads, which is no sign of trouble.
func Candidate(attempt string) bool { return strings.HasPrefix(attempt, candidacy) }

// members returns the number of members, at least 1.
func (r Request) members() int { return max(r.Members, 1) }

// Grant is a lock that was granted. Its session and Token identify the lock.
type Grant struct {
	First     int64         // the token of the first member of a cohort; otherwise as Token
	Token     int64         // of the last member
	Contended bool          // the name has waiters
	Lease     time.Duration // the rest of a fixed lease when the statement ran; 0: no fixed lease
}

// Has reports whether a token belongs to the grant.
func (g Grant) Has(token int64) bool { return g.First <= token && token <= g.Token }

// Held identifies a lock by its holder. Both session and token must match.
type Held struct {
	Name    string
	Session string
	Token   int64
	Shared  bool // a share, not the whole name
}

// Handoff is a grant to a waiter.
type Handoff struct {
	Session string
	Attempt string
	Grant   Grant
}

// Hint is a notification to a listener. Grant is set if the hint was sent with the commit of the
// grant, and the grant has no fixed lease, whose rest would age on the way. Otherwise the receiver
// reads the grant from the database.
type Hint struct {
	Attempt string // "" if unknown
	Grant   Grant
}

// Notice is a hint to a session, sent with the commit or right after it.
type Notice struct {
	Session string
	Hint    Hint
}

// Event is something that happened to a name.
type Event struct {
	ID       int64 // rising, with gaps
	At       time.Time
	Name     string
	Kind     string // at most 32 ASCII letters
	Token    int64
	Session  string
	Host     string
	Thread   string
	Detail   string
	Metadata string // JSON object, "" for none
}

// Holder is a holder of a name.
type Holder struct {
	Session string
	Host    string
	Thread  string
	Attempt string
	Units   int // 0: the whole name
	// Grant has the holder's tokens, and the rest of its fixed lease (-1ns if that has expired,
	// since 0 means no fixed lease).
	Grant Grant
	Since time.Time // by the database's clock
	// Left is the time until its session or its fixed lease ends, without another heartbeat, from
	// when the row was read; ≤ 0: expired.
	Left time.Duration
}

// Millisecond is the format of times in errors.
const Millisecond = "2006-01-02T15:04:05.000Z07:00"

// Named returns the holder as errors name it.
func (h Holder) Named() string {
	return fmt.Sprintf("%s thread %s with token %d since %s", h.Host, h.Thread, h.Grant.Token,
		h.Since.Format(Millisecond))
}

// WithFixedLease returns the holder with the rest of its fixed lease. The holder expires with that
// lease or with its session, whichever is first.
func (h Holder) WithFixedLease(left time.Duration) Holder {
	h.Left = min(h.Left, left)
	h.Grant.Lease = left
	if left <= 0 {
		h.Grant.Lease = -1
	}
	return h
}

// micros converts a duration to the unit of the tables.
func micros(d time.Duration) int64 { return d.Microseconds() }

// duration is the reverse of micros.
func duration(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
