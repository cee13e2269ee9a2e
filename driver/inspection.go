package driver

import (
	"context"
	"time"
)

// Inspection shows the locks to people and programs.
type Inspection interface {
	// Describe returns the details of names, in the order of their bytes. A name without a row is
	// left out.
	Describe(ctx context.Context, names []string) ([]Detail, error)

	// Names lists up to limit names that match the filter and come after one, in the order of their
	// bytes.
	Names(ctx context.Context, f Filter, after string, limit int) ([]string, error)

	// Watch registers a session for changes of a name, under an id of its own. Its listener
	// receives a hint with the id for each Stir or Announce. The watch ends with the session, or
	// with Unwatch.
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
}

// Detail is a name as an inspector sees it.
type Detail struct {
	Name     string
	Token    int64 // the highest token granted
	Capacity int   // as in State
	Holders  []Party
	Waiters  []Party // in the order of the queue
	Rest     time.Duration
}

// Party is a holder or a waiter of a name.
type Party struct {
	Holder          // of a waiter: no token, the time since when it waits, and what is left of its session
	Holds    int    // how often the holder has entered the lock
	App      string // of its session
	PID      int
	Metadata string // a JSON object, "" for none
	Asked    string
}
