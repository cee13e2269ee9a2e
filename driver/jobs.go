package driver

import (
	"context"
	"time"
)

// Jobs keep the runs of jobs in their slots.
type Jobs interface {
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
