package driver

import (
	"context"
	"math"
	"time"
)

// AllWaiters has Describe return every waiter.
const AllWaiters = math.MaxInt32

// Inspection shows the locks to people and programs.
type Inspection interface {
	// Describe returns the details of names, in the order of their bytes, each with up to so many
	// waiters: the first of its queue. It reads no more places of a queue than these. A name
	// without a row is left out.
	Describe(ctx context.Context, names []string, waiters int) ([]Detail, error)

	// Names lists up to limit names that match the filter, in the order of their bytes. It goes
	// along the primary key, from f.After on.
	Names(ctx context.Context, f Filter, limit int) ([]string, error)

	// Why lists a name and the names that its holders wait for, directly or through others: up to
	// limit, those next to it first. A name without a row has none. It is one statement, and so one
	// snapshot.
	Why(ctx context.Context, name string, limit int) ([]string, error)

	// Sessions lists up to limit sessions that match the filter and have a higher id than after, in
	// the order of their ids, with what each holds and waits for.
	Sessions(ctx context.Context, f SessionFilter, after string, limit int) ([]SessionDetail, error)

	// Watch registers a session for changes of a name, under an id of its own. Its listener
	// receives a hint with the id for each Stir, or transition that stirs. The watch ends with the
	// session, or with Unwatch.
	Watch(ctx context.Context, session, name, watch string) error
	Unwatch(ctx context.Context, name, watch string) error

	// Stir notifies all sessions that watch a name.
	Stir(ctx context.Context, name string) error
}

// Filter selects names. The zero value selects all names with holders or waiters.
type Filter struct {
	Prefix string        // of the name, byte for byte
	Host   string        // of a holder
	Older  time.Duration // a holder has had it for at least so long
	Idle   bool          // also names without holders and waiters

	Contended bool   // only names with waiters
	After     string // only names above this one
}

// ContendedAlone reports whether the filter asks for names with waiters, whoever holds them.
func (f Filter) ContendedAlone() bool { return f.Contended && f.Host == "" && f.Older <= 0 }

// SessionFilter selects sessions. The zero value selects all that live.
type SessionFilter struct {
	Host string
	App  string
	Dead bool // also sessions that are dead, or whose time is over
}

// SessionDetail is a session as an inspector sees it.
type SessionDetail struct {
	ID      string
	Host    string
	App     string
	PID     int
	Started time.Time     // by the database's clock
	Dead    bool          // it was ended: it has no time
	Left    time.Duration // until it ends without another heartbeat; ≤ 0: over
	Held    int           // locks and shares; a cohort is one
	Waiting int           // places in queues; a cohort is one
}

// Detail is a name as an inspector sees it.
type Detail struct {
	Name     string
	Token    int64 // the highest token granted
	Capacity int   // as in State
	Holders  []Participant
	Waiters  []Participant // the first, in the order of the queue
	Queued   int           // how many wait: the members of all places
	Rest     time.Duration
}

// Participant is a holder or a waiter of a name.
type Participant struct {
	Holder          // of a waiter: no token, the time since when it waits, and what is left of its session
	App      string // of its session
	PID      int
	Metadata string // a JSON object, "" for none
	Asked    string
}
