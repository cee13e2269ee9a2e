package driver

import (
	"context"
	"time"
)

// Records keep the history of names.
type Records interface {
	// Record writes events, with the database's time.
	Record(ctx context.Context, events []Event) error

	// Announce writes an event if the lock is held, under the lock of the name's row, and then
	// notifies all sessions that watch the name, as Stir does. ErrNotHeld.
	Announce(ctx context.Context, h Held, e Event) error

	// Events lists up to limit events in the order of their ids, after one, of a name ("": of all),
	// and of the kinds (none: of all).
	Events(ctx context.Context, name string, kinds []string, after int64, limit int) ([]Event, error)

	// Ask marks every lock held on the name with a reason, notifies the holders' sessions, and
	// records the event, in one transaction. It returns the number of holders. Without a holder it
	// records nothing.
	Ask(ctx context.Context, name, reason string, e Event) (holders int, err error)

	// EndRest ends the cool-down (MinHold) of a name, held or not, and records the event, in one
	// transaction. Without a cool-down it returns false and records nothing. It grants nothing:
	// TakeOver does.
	EndRest(ctx context.Context, name string, e Event) (ended bool, err error)
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
