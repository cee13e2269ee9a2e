package driver

import (
	"context"
	"math"
	"time"

	"github.com/dblock-go/dblock/internal/protocol"
)

// Records keeps the history of names.
type Records interface {
	// Record writes events, with the database's time.
	Record(ctx context.Context, events []protocol.Event) error

	// Events lists up to limit events that match the filter, in the order of their ids, along an
	// index.
	Events(ctx context.Context, f EventFilter, limit int) ([]protocol.Event, error)

	// EventsSince returns an id below those of all events of a time or later, and close to them;
	// math.MaxInt64 where there is no such event. Events have ids nearly in the order of their
	// times, so EventsSince reads only the first thousand of them.
	EventsSince(ctx context.Context, since time.Time) (after int64, err error)
}

// EventFilter selects events. The zero value selects all, from the lowest id.
type EventFilter struct {
	Name   string   // "": of all names
	Kinds  []string // none: all
	After  int64    // only higher ids
	Before int64    // only lower ids; 0: any
	Newest bool     // in descending order of ids
}

// Below returns the id below which all events of the filter are.
func (f EventFilter) Below() int64 {
	if f.Before == 0 {
		return math.MaxInt64
	}
	return f.Before
}
