package driver

import (
	"context"
	"time"
)

// Inspection is what people and programs see of the locks.
type Inspection interface {
	// Describe tells all about names, in the order of their bytes; a name without a row is left
	// out.
	Describe(ctx context.Context, names []string) ([]Detail, error)

	// Names lists up to limit names in the order of their bytes, after one, that match the filter.
	Names(ctx context.Context, f Filter, after string, limit int) ([]string, error)

	// Watch registers that a session wants to hear of changes of a name, under an id of its own,
	// for which its listener then hears a hint whenever Stir or Announce is called. It ends with
	// the session, or with Unwatch.
	Watch(ctx context.Context, session, name, watch string) error
	Unwatch(ctx context.Context, name, watch string) error

	// Stir wakes all sessions that watch a name.
	Stir(ctx context.Context, name string) error
}

// Filter says which names are meant. The zero value: all that are held or waited for.
type Filter struct {
	Prefix string        // of the name, byte for byte
	Host   string        // of a holder
	Older  time.Duration // some holder has it for at least so long
	Idle   bool          // also names that nobody holds or waits for
}

// Detail is a name as an inspector sees it.
type Detail struct {
	Name     string
	Token    int64 // the highest that was granted
	Capacity int   // as in State
	Holders  []Party
	Waiters  []Party // in the order of the queue
	Rest     time.Duration
}

// Party is one who holds a name, or waits for it.
type Party struct {
	Holder          // of a waiter: no token, since when it waits, and how long its session can go on
	Holds    int    // how often it has entered
	App      string // of its session
	PID      int
	Metadata string // JSON object, "" for none
	Asked    string
}
