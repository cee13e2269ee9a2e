package driver

import (
	"context"
	"time"
)

// Records is what a database keeps beside the locks: what happened to names, and the runs of jobs
// in their slots.
type Records interface {
	// Record writes events, with the database's time.
	Record(ctx context.Context, events []Event) error

	// Announce writes an event if the lock is held, under the lock of the name's row, and then
	// wakes all who watch the name, as Stir does. ErrNotHeld.
	Announce(ctx context.Context, h Held, e Event) error

	// Events lists up to limit events in the order of their ids, after one, of a name ("": of all),
	// and of the kinds (none: of all).
	Events(ctx context.Context, name string, kinds []string, after int64, limit int) ([]Event, error)

	// Ask marks every lock that is held of the name with a reason, wakes the holders' sessions, and
	// records the event, in one transaction. It returns how many holders there are; without one it
	// records nothing.
	Ask(ctx context.Context, name, reason string, e Event) (holders int, err error)

	// EndRest ends what MinHold keeps of a name, held or not, and records the event, in one
	// transaction. False where the name does not rest, and then nothing is recorded. It hands
	// nothing on: Reclaim does.
	EndRest(ctx context.Context, name string, e Event) (ended bool, err error)

	// BeginRun claims the slot of the database's clock (time divided by interval, rounded down) of
	// a name. It reports false, with the run that there is, where somebody has claimed it, or where
	// a run of another interval began within it: unless, with retry, that run has failed or its
	// session is dead. Then the claim passes on, and Tries goes up. Slots of two intervals may have
	// the same number: the end tells them apart, and a run of a slot that is over gives its row to
	// a slot with the same number. The caller holds the job's lock: two claims for one name at once
	// are decided by the key only where their intervals are the same.
	BeginRun(ctx context.Context, r Run, interval time.Duration, retry bool) (Run, bool, error)

	// EndRun writes the outcome of a run, if the token that claimed it still has it; ErrNotHeld if
	// not.
	EndRun(ctx context.Context, r Run) error

	// Runs lists up to limit runs of a name, the one that began latest first, of those that began
	// before a time (the zero time: all). Slots are no order of them: the interval may have
	// changed.
	Runs(ctx context.Context, name string, before time.Time, limit int) ([]Run, error)

	// PurgeRecords deletes up to limit events and up to limit runs that were over for longer than
	// keep; not the events with the token of who holds the whole name now.
	PurgeRecords(ctx context.Context, keep time.Duration, limit int) (deleted int, err error)

	// Incarnation is for how long the database has had the data that it has, as far as it is known:
	// since it was first asked, or last renewed; and a token that none before was above, 0 where
	// nobody has said one. With renew it begins anew, with that token, also with 0. A floor below 0
	// changes nothing, and has the database look at all its locks: Floor is then at least every
	// token that it knows of, its locks', its incarnation's, and that of its clock.
	Incarnation(ctx context.Context, renew bool, floor int64) (Incarnation, error)
}

// Event is something that happened to a name.
type Event struct {
	ID       int64 // rising; not without gaps
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
	Ended    time.Time // zero: it has not
	Failed   bool
	Detail   string // why it failed
	Tries    int
	SlotEnds time.Time
}

// Incarnation is a database's memory. See package quorum.
type Incarnation struct {
	Age   time.Duration
	Floor int64
	Fresh bool // it did not exist before this call
}
