package driver

import (
	"context"
	"math"
	"time"
)

// Jobs records the runs of jobs in their slots.
type Jobs interface {
	// BeginRun claims a slot of a name. It returns false and the existing run where the slot is
	// claimed already, or counts as run. A run that has failed, or whose session is dead, passes
	// its claim on if retry allows it, and Tries increases. The caller must hold the job's lock:
	// the key decides between two claims at once only where they are for the same slot.
	//
	// A slot of the database's clock counts as run if a run under another interval, or of a moment,
	// began within it. Slots of two intervals may have the same number: their ends tell them apart,
	// and a past slot's run gives its row to a slot with the same number.
	//
	// A moment counts as run if a later one has a run, failed or not, or if a run under an interval
	// began at it or later. A schedule's slot is the latest of its moments by the database's clock.
	// If there is none, or a moment is too early, BeginRun returns false and a run in which only
	// Seen is set.
	BeginRun(ctx context.Context, r Run, slot Slot, retry Retry) (Run, bool, error)

	// EndRun writes the outcome of a run. ErrNotHeld unless the run's token still has the claim.
	EndRun(ctx context.Context, r Run) error

	// Runs lists up to limit runs that match the filter.
	Runs(ctx context.Context, f RunFilter, limit int) ([]Run, error)
}

// RunFilter selects the runs of one name, latest first, or the latest run of each name, in the
// order of their bytes. Slots do not order runs, because the interval may have changed.
type RunFilter struct {
	Name   string    // "": the latest run of each name, for which all of its runs are read
	Before time.Time // of one name: only runs that began before this time; the zero time: all
	After  string    // of each name: only names above this one
}

// MaxAhead is how far a moment may be ahead of the database's clock for its slot to be claimed.
const MaxAhead = time.Minute

// Slot is the unit for which a job runs once: a span of time, or a moment.
type Slot struct {
	Length time.Duration // the current slot of this length, by the database's clock
	Moment int64         // with Length 0: a moment, in microseconds since 1970, which is also its number and its end
	Times  Schedule      // instead of both: the latest of these moments by the database's clock
}

// Schedule is an ordered sequence of moments.
type Schedule interface {
	// Latest and Next return the zero time where there is none.
	Latest(now time.Time) time.Time
	Next(after time.Time) time.Time
}

// On returns the latest moment of a schedule by a clock, as a slot. Any other slot is returned
// unchanged. It returns false if the schedule has no such moment.
func (s Slot) On(now int64) (Slot, bool) {
	if s.Times == nil {
		return s, true
	}
	latest := s.Times.Latest(time.UnixMicro(now))
	return Slot{Moment: latest.UnixMicro()}, !latest.IsZero()
}

// Next returns when the next slot begins, by a clock; the zero time: never.
func (s Slot) Next(now int64) time.Time {
	if s.Times != nil {
		return s.Times.Next(time.UnixMicro(now))
	}
	_, _, ends := s.At(now)
	return time.UnixMicro(ends)
}

// Span returns the time from the slot's beginning to the next slot's, by a clock; 0: not known.
func (s Slot) Span(now time.Time) time.Duration {
	if s.Times == nil {
		return s.Length
	}
	latest, next := s.Times.Latest(now), s.Times.Next(now)
	if latest.IsZero() || next.IsZero() {
		return 0
	}
	return next.Sub(latest)
}

// At returns the number of the slot, and when it begins and ends, by a clock.
func (s Slot) At(now int64) (number, begins, ends int64) {
	if s.Length == 0 {
		return s.Moment, s.Moment, s.Moment
	}
	length := max(s.Length.Microseconds(), 1)
	number = now / length
	return number, number * length, (number + 1) * length
}

// Early reports whether the slot is a moment that is more than MaxAhead ahead of a clock.
func (s Slot) Early(now time.Time) bool {
	return s.Length == 0 && s.Times == nil && s.Moment > now.Add(MaxAhead).UnixMicro()
}

// Retry says when a slot is run again after a failed run. The zero value: never.
type Retry struct {
	Most    int           // the number of retries
	Backoff time.Duration // the shortest pause after the first failure; it doubles with each further one
}

// At returns when a failed run may be retried; false: the run has not failed, or has no retries
// left. The run of a process that died counts as failed when it began.
func (r Retry) At(run Run) (at time.Time, again bool) {
	if !run.Failed || run.Tries > r.Most {
		return at, false
	}
	at = run.Began
	if !run.Ended.IsZero() {
		at = run.Ended
	}
	backoff := r.Backoff
	for range run.Tries - 1 {
		backoff = min(2*backoff, math.MaxInt64/4)
	}
	return at.Add(backoff), true
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
	SlotEnds time.Time // of a moment: the moment
	Seen     time.Time // when this state was read
}
