package driver

import (
	"context"
	"time"
)

// Records keeps the history of names, and the runs of jobs in their slots.
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
	// Reclaim does.
	EndRest(ctx context.Context, name string, e Event) (ended bool, err error)

	// BeginRun claims the slot of the database's clock (time divided by interval, rounded down) of
	// a name. It returns false and the existing run where the slot is claimed already, or where a
	// run of another interval began within it. With retry, a run that has failed, or that has a
	// dead session, passes its claim on, and Tries goes up. Slots of two intervals may have the
	// same number: their ends tell them apart, and a run of a slot that is over gives its row to a
	// slot with the same number. The caller must hold the job's lock: the key decides between two
	// claims at once only where their intervals are the same.
	BeginRun(ctx context.Context, r Run, interval time.Duration, retry bool) (Run, bool, error)

	// EndRun writes the outcome of a run. ErrNotHeld unless the claim is still that of the run's
	// token.
	EndRun(ctx context.Context, r Run) error

	// Runs lists up to limit runs of a name that began before a time (the zero time: all), latest
	// first. Slots do not order runs, because the interval may have changed.
	Runs(ctx context.Context, name string, before time.Time, limit int) ([]Run, error)

	// PurgeRecords deletes up to limit events and up to limit runs that were over for longer than
	// keep. It keeps the events with the token of the present holder of a whole name.
	PurgeRecords(ctx context.Context, keep time.Duration, limit int) (deleted int, err error)

	// Incarnation returns the age of the database's data, counted from the first call or the last
	// renewal, and its floor: a token that no earlier one was above, or 0 if none is known. With
	// renew the age begins anew, with the given floor, which may be 0. A floor below 0 changes
	// nothing. Floor is then at least every token that the database knows of: those of its locks
	// and its incarnation, and that of its clock.
	Incarnation(ctx context.Context, renew bool, floor int64) (Incarnation, error)
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

// Run is one run of a job in its slot.
type Run struct {
	Name     string
	Slot     int64
	Token    int64 // of the lock under which it runs
	Session  string
	Host     string
	Thread   string
	Began    time.Time
	Ended    time.Time // zero: the run has not ended
	Failed   bool
	Detail   string // why the run failed
	Tries    int
	SlotEnds time.Time
}

// Incarnation tells how long a database remembers. See package quorum.
type Incarnation struct {
	Age   time.Duration
	Floor int64
	Fresh bool // this call made it
}
