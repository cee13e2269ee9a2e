package driver

import (
	"context"
	"math"
	"time"
)

// All is the limit that omits nothing.
const All = math.MaxInt32

// Inspection reads names, queues and sessions, for the clients that wait for them, and for
// operators.
type Inspection interface {
	// Read returns the states of names as a session sees them, in the order of their bytes. Without
	// a session ("") a state has no Queued and Granted. A name without a row is left out. If
	// waiters > 0, a state has all Holders, and up to so many waiters in Queue. Read reads no more
	// places of a queue than those, or the first one.
	Read(ctx context.Context, session string, names []string, waiters int) ([]State, error)

	// Names lists up to limit names that match the filter, in the order of their bytes. It reads
	// along the primary key, or along the queues, from f.After on.
	Names(ctx context.Context, f Filter, limit int) ([]string, error)

	// Why lists a name and the names that its holders wait for, directly or through others: up to
	// limit, the nearest first. For a name without a row the list is empty. Unlike WaitGraph, Why
	// follows cohorts and dead sessions, for operators. It is one statement, and so one snapshot.
	Why(ctx context.Context, name string, limit int) ([]string, error)

	// Sessions lists up to limit sessions that match the filter and have a higher id than after, in
	// the order of their ids, with the numbers of their locks and places.
	Sessions(ctx context.Context, f SessionFilter, after string, limit int) ([]SessionDetail, error)

	// Claims lists up to limit locks and places in queues that a session has, dead or not, in no
	// order.
	Claims(ctx context.Context, session string, limit int) ([]Claim, error)

	// WaitGraph lists the part of the wait-for graph that places in queues can reach: these places,
	// if they still exist; the holders of each name that has a place in the list; the places in
	// queues of each owner (session, host and thread) that holds such a name. Dead sessions are
	// left out, and so are cohorts. It is one statement, and so one snapshot.
	WaitGraph(ctx context.Context, from []Waiting) ([]Wait, error)

	// Watch registers a session for changes of a name, under an id of its own. Its listener
	// receives a hint with the id for each transition that notifies watchers (Announce, EndRest,
	// Break). The watch ends with the session, or with Unwatch.
	Watch(ctx context.Context, session, name, watch string) error
	Unwatch(ctx context.Context, name, watch string) error
}

// Filter selects names. The zero value selects all names with holders or waiters.
type Filter struct {
	Prefix string        // of the name, byte for byte
	Host   string        // of a holder
	Older  time.Duration // a holder has had it for at least so long
	Idle   bool          // also names without holders and waiters

	Contended bool   // only names with waiters that are no candidates
	After     string // only names above this one
}

// ContendedAlone reports whether the filter asks for names by their waiters alone.
func (f Filter) ContendedAlone() bool { return f.Contended && f.Host == "" && f.Older <= 0 }

// SessionFilter selects sessions. The zero value selects all live sessions.
type SessionFilter struct {
	Host string
	App  string
	Dead bool // also sessions that are dead or expired
}

// SessionDetail is a session as package inspect shows it.
type SessionDetail struct {
	ID      string
	Host    string
	App     string
	PID     int
	Started time.Time     // by the database's clock
	Dead    bool          // it was ended for good
	Left    time.Duration // until it expires without another heartbeat; ≤ 0: it has expired
	Held    int           // locks and shares; a cohort is one
	Waiting int           // places in queues; a cohort is one
	Buried  string        // why it was buried (Sessions.Bury); "": it was not
}
