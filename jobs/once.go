package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/driver"
)

// firstMoment is the earliest slot of OnceAt, above the numbers of all slots of intervals.
var firstMoment = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)

// lastYear is the last year with slots of OnceAt: the microseconds of far later years overflow.
const lastYear = 9999

// OncePer runs fn if no process has run it in the present slot of the interval. ran reports whether
// this call did. Every process may call it at any time, by a ticker or cron.
//
// If fn ran, the error is that of fn, joined with ErrLost if the lock was lost before fn returned.
// If fn did not run, the error is nil if another call has run the slot, runs it, or is checking it;
// otherwise the error is one of TryLock. ErrInvalidName and ErrInvalidOption before any I/O.
//
// name: 1 to 250 bytes, 5 fewer than a lock's, since the job's lock has "once/" before the name.
// interval: at least 100 ms.
func (r *Runner) OncePer(
	ctx context.Context, name string, interval time.Duration, fn Func, options ...Option,
) (ran bool, err error) {
	return r.once(ctx, "onceper", name, driver.Slot{Length: interval}, nil, fn, options)
}

// OnceAt runs fn if no process has run it for this slot: the time for which the run was planned, to
// the microsecond. ran reports whether this call did. Every process calls it when that time has
// come. For a Schedule, Latest returns the slot to name.
//
// fn gets its slot. Errors are those of OncePer. ErrInvalidOption for a slot before 1971, such as
// the zero time, or after 9999. ErrInvalidOption also for a slot that is more than a minute ahead
// of the database's clock, if no other call runs the job: such a slot would keep all those before
// it from being run. A process whose clock is that far ahead gets this error until the time has
// come; the error shows both times in the zone of the slot.
func (r *Runner) OnceAt(
	ctx context.Context, name string, slot time.Time, fn Func, options ...Option,
) (ran bool, err error) {
	if slot.Before(firstMoment) || slot.Year() > lastYear {
		err := fmt.Errorf("%w: a slot at %v: want 1971 to %d", dblock.ErrInvalidOption, slot, lastYear)
		return false, fail("onceat", name, err)
	}
	moment := driver.Slot{Moment: slot.Truncate(time.Microsecond).UnixMicro()}
	return r.once(ctx, "onceat", name, moment, slot.Location(), fn, options)
}

// once implements OncePer and OnceAt.
func (r *Runner) once(
	ctx context.Context, op, name string, slot driver.Slot, zone *time.Location, fn Func, options []Option,
) (ran bool, err error) {
	j, err := r.job(ctx, name, slot, zone, fn, options)
	if err != nil {
		return false, fail(op, name, err)
	}
	res := j.once(ctx)
	return res.ran, driver.Join(res.outcome, fail(op, name, res.failure))
}
