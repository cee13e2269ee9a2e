package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
)

// Every runs fn in each slot of an interval until ctx ends: once per slot over all processes. It
// calls OncePer when a slot begins, and for RetryFailed, by the database's clock. Every process
// calls it. name and interval: as of OncePer.
//
// Every returns nil when ctx has ended and fn has returned. An error of fn does not end it: that
// error is the outcome of the run (Runs, observe.Observer.RunEnd), and is logged as a warning. An
// outage does not end Every either. It returns at once ErrInvalidName and ErrInvalidOption, and
// later ErrClosed, ErrConfig, ErrSchema and ErrUnsupported, since no further try would succeed.
func (r *Runner) Every(
	ctx context.Context, name string, interval time.Duration, fn Func, options ...Option,
) error {
	return r.every(ctx, "every", name, driver.Slot{Length: interval}, nil, fn, options)
}

// EveryAt runs fn at each time of a schedule until ctx ends, such as those of a cron expression
// (NewSchedule): once per time over all processes. Every process calls it, with the same schedule.
// The slot is the latest time of the schedule by the database's clock, so that clocks of machines
// do not matter.
//
// A time that comes while the database is away, while no process is there, or during a run, is run
// late, by the first process that can: the latest time, and none before it. So a job that never had
// a run gets its first one when EveryAt begins. fn gets its slot in the schedule's zone, and
// returns nil at once if it is too late for that. The same holds for a schedule that has changed:
// if its latest time is later than the slot of the last run, that time is run at once.
//
// It returns as Every does.
func (r *Runner) EveryAt(
	ctx context.Context, name string, schedule *Schedule, fn Func, options ...Option,
) error {
	if schedule == nil || schedule.times == nil {
		err := fmt.Errorf("%w: the schedule is nil: NewSchedule makes one", dblock.ErrInvalidOption)
		return fail("everyat", name, err)
	}
	return r.every(ctx, "everyat", name, driver.Slot{Times: moments{schedule}}, schedule.zone, fn, options)
}

// moments are the times of a schedule that OnceAt accepts.
type moments struct{ *Schedule }

func (m moments) Latest(now time.Time) time.Time {
	if latest := m.Schedule.Latest(now); !latest.Before(firstMoment) {
		return latest.Truncate(time.Microsecond)
	}
	return time.Time{}
}

// every implements Every and EveryAt.
func (r *Runner) every(
	ctx context.Context, op, name string, slot driver.Slot, zone *time.Location, fn Func, options []Option,
) error {
	j, err := r.job(ctx, name, slot, zone, fn, options)
	if err == nil {
		err = j.every(ctx)
	}
	return fail(op, name, err)
}

// every runs the job in each of its slots until ctx ends, and then returns nil. It returns earlier
// with an error after which no further try would succeed.
func (j *job) every(ctx context.Context) error {
	for {
		res := j.once(ctx)
		switch err := driver.Join(res.outcome, res.failure); {
		case ctx.Err() != nil:
			return nil
		case hopeless(res.failure):
			return res.failure
		case err != nil:
			j.Log().Warn("dblock: a job failed", "name", j.name, "error", err)
		}
		if res.next == 0 {
			res.next = min(max(j.slot.Span(time.Now())/10, 100*time.Millisecond), 10*time.Second)
		}
		if !j.sleep(ctx, res.next) {
			return nil
		}
	}
}

// hopeless reports whether no repetition of the call can succeed.
func hopeless(err error) bool {
	for _, is := range []error{
		dblock.ErrClosed, dblock.ErrInvalidOption, dblock.ErrConfig, dblock.ErrSchema, dblock.ErrUnsupported,
	} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

// sleep waits for d by the client's clock, which continues while the machine sleeps, or until the
// client is closed. It returns false if ctx has ended.
func (j *job) sleep(ctx context.Context, d time.Duration) bool {
	over, clock := make(chan struct{}), j.Clock()
	defer clock.Alarm(clock.Now()+d, func() { close(over) })()
	select {
	case <-over:
		return true
	case <-j.Store().Background.Done():
		return true
	case <-ctx.Done():
		return false
	}
}
