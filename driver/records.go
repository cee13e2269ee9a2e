package driver

import (
	"context"
	"math"
	"time"
)

// Records keep the history of names.
type Records interface {
	// Record writes events, with the database's time.
	Record(ctx context.Context, events []Event) error

	// Announce writes an event if the lock is held, under the lock of the name's row, and then
	// notifies all sessions that watch the name, as Stir does. ErrNotHeld.
	Announce(ctx context.Context, h Held, e Event) error

	// Events lists up to limit events that match the filter, in the order of their ids, along an
	// index.
	Events(ctx context.Context, f EventFilter, limit int) ([]Event, error)

	// EventsSince returns an id that all events of a time or later are above, and few before them;
	// math.MaxInt64 where there is no such event. Events have ids nearly in the order of their
	// times, so it looks at the first thousand of them only.
	EventsSince(ctx context.Context, since time.Time) (after int64, err error)

	// Ask marks every lock held on the name with a reason, notifies the holders' sessions, and
	// records the event, in one transaction. It returns the number of holders. Without a holder it
	// records nothing.
	Ask(ctx context.Context, name, reason string, e Event) (holders int, err error)

	// EndRest ends the cool-down (MinHold) of a name, held or not, and records the event, in one
	// transaction. With a token it does so only if the name was last granted as a whole with this
	// one, which for a run is its last. Without a cool-down it returns false and records nothing.
	// It grants nothing: TakeOver does.
	EndRest(ctx context.Context, name string, token int64, e Event) (ended bool, err error)
}

// EventFilter selects events. The zero value selects all, from the lowest id.
type EventFilter struct {
	Name   string   // "": of all names
	Kinds  []string // none: all
	After  int64    // only higher ids
	Before int64    // only lower ids; 0: any
	Newest bool     // from the highest id down
}

// Below is the id that all events of the filter are below.
func (f EventFilter) Below() int64 {
	if f.Before == 0 {
		return math.MaxInt64
	}
	return f.Before
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
