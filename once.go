package dblock

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/page"
)

// minInterval is the shortest slot of OncePer.
const minInterval = 100 * time.Millisecond

// firstMoment is the earliest slot of OnceAt: the numbers of OncePer's slots are lower.
var firstMoment = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)

// lastYear is the last with slots of OnceAt: far later years have no number of microseconds.
const lastYear = 9999

// Run is one run of a job in its slot.
type Run struct {
	Name     string
	Slot     int64     // the database's time divided by the interval, rounded down; another interval has other slots; of OnceAt microseconds since 1970
	SlotEnds time.Time // by the database's clock; of OnceAt the slot itself
	Token    int64     // of the lock under which it ran
	Host     string    // of the process that ran it
	Thread   string
	Began    time.Time // by the database's clock
	Ended    time.Time // the zero time: it runs still, or its process died
	Err      string    // why it failed; "": it did not, or has not ended
	Tries    int       // how often it was begun
}

// RunOption configures OncePer and OnceAt.
type RunOption func(*runConfig)

type runConfig struct {
	retry   driver.Retry
	retries bool
}

// RetryFailed lets a slot be run again whose run has failed, or whose process died: up to most
// times, by a call that comes when backoff has passed since the failure (since the run's beginning,
// where its process died), twice as much after the second, and so on. The slots of OncePer end:
// what has not been tried again by then is left to the next slot. most: at least 1. backoff: 0 or
// more. Default: a slot is run once, come what may.
func RetryFailed(most int, backoff time.Duration) RunOption {
	return func(c *runConfig) { c.retry, c.retries = driver.Retry{Most: most, Backoff: backoff}, true }
}

// OncePer runs fn if no process has done so in this slot, over all processes: a slot is as long as
// interval, on the database's clock, and begins where that, in microseconds since 1970, is a
// multiple of it. Call it from every process as often as you like (a ticker, cron): ran tells
// whether it was this call. At most one call runs a slot, however short fn is and however far the
// processes' clocks are apart. Runs of a name do not overlap either: while one goes on, in whatever
// slot, others are not begun. The first slot after that is run by the next call; those that
// have gone by are not made up for.
//
// When the interval changes, with a deployment say, the slots change with it. A slot of the new
// interval counts as run if it was run, or if a run under another interval began in it; otherwise
// the next call runs it. So no slot is run twice, and none is left out in which nothing ran: a
// shorter interval holds from its next slot on, a longer one from the end of the slot that has the
// last run, and to change it back and forth runs nothing more. While two intervals are in use at
// once, each has its slots: the job may run more often than either says.
//
// fn runs under a lock of the name, "once/" before it: its context ends, with cause ErrLost, when
// that is lost. What it returns becomes the run's outcome, which is kept (Runs) for as long as the
// reaper's History says. If the process dies, the slot counts as run, unless RetryFailed is given.
//
// fn is told when its slot began, by the database's clock. The error is fn's, joined with ErrLost
// where the lock was lost before fn returned. Where fn did not run, it is nil if another call has
// run the slot or is running, or is about to find out; and otherwise as of TryLock. While the
// database is away, OncePer tries for up to a TTL: also in a client that has never reached it, and
// to write the outcome. name: 1 to 250 bytes. interval: at least 100 ms. If fn panics, OncePer does
// too, and the run's Err has the value and the stack, up to 4 KB.
func (c *Client[TX]) OncePer(ctx context.Context, name string, interval time.Duration, fn func(ctx context.Context, l *Lock, slot time.Time) error, options ...RunOption) (ran bool, err error) {
	return c.once(ctx, "onceper", name, driver.Slot{Length: interval}, nil, fn, options)
}

// Every runs fn in each slot of an interval until ctx ends: it calls OncePer when a slot begins,
// and for RetryFailed, by the database's clock. Call it in every process. Its runs are those of
// OncePer: one for each slot over all processes, none beside another, and none for slots that have
// gone by.
//
// It returns nil when ctx has ended and fn has returned. What fn returns does not end it: it is the
// outcome of the run (Runs, Observer.RunEnd), and logged as a warning. An outage does not end it
// either. It returns at once ErrInvalidName and ErrInvalidOption, and where it cannot go on
// ErrClosed, ErrConfig, ErrSchema and ErrUnsupported.
func (c *Client[TX]) Every(ctx context.Context, name string, interval time.Duration, fn func(ctx context.Context, l *Lock, slot time.Time) error, options ...RunOption) error {
	return c.every(ctx, "every", name, driver.Slot{Length: interval}, nil, fn, options)
}

// EveryAt runs fn at each time of a schedule until ctx ends, such as those of a cron expression
// (NewSchedule). Call it in every process, with the same schedule. Its runs are those of OnceAt:
// one for each time over all processes, none beside another, in their order. The slot is the latest
// time of the schedule by the database's clock, so that clocks of machines do not matter.
//
// A time that comes while the database is away, while no process is there, or while a run goes on,
// is run late, by the first that can: the latest one, and none of those before it. So a job that
// never had a run gets its first one when EveryAt begins. fn is told its slot in the schedule's
// zone, and returns nil at once where it is too late for that.
//
// It returns as Every does.
func (c *Client[TX]) EveryAt(ctx context.Context, name string, schedule *Schedule, fn func(ctx context.Context, l *Lock, slot time.Time) error, options ...RunOption) error {
	if schedule == nil || schedule.times == nil {
		return &LockError{"everyat", name, fmt.Errorf("%w: the schedule is nil: NewSchedule makes one", ErrInvalidOption)}
	}
	return c.every(ctx, "everyat", name, driver.Slot{Times: slots{schedule}}, schedule.zone, fn, options)
}

// slots are the times of a schedule that OnceAt has slots for.
type slots struct{ *Schedule }

func (s slots) Latest(now time.Time) time.Time {
	if latest := s.Schedule.Latest(now); !latest.Before(firstMoment) {
		return latest.Truncate(time.Microsecond)
	}
	return time.Time{}
}

// every is Every and EveryAt.
func (c *Client[TX]) every(ctx context.Context, op, name string, slot driver.Slot, zone *time.Location, fn func(ctx context.Context, l *Lock, slot time.Time) error, options []RunOption) error {
	job, err := c.jobOf(ctx, name, slot, zone, fn, options)
	if err == nil {
		err = c.Core().Every(ctx, *job)
	}
	return fail(op, name, err)
}

// OnceAt runs fn if no process has done so for this slot, over all processes: for schedules that
// are no intervals, such as cron expressions. A slot is the time for which the run was planned, to
// the microsecond: every process must name it alike, and call OnceAt when that time has come. ran
// tells whether it was this call. As with OncePer, at most one call runs a slot, runs of a name do
// not overlap, fn runs under a lock of the name, "once/" before it, Runs lists its outcome, and a
// slot whose run failed, or whose process died, is run again only with RetryFailed.
//
// Slots of a name are run in their order. Once a slot has a run, whatever became of that, no
// earlier one is run, however late it is asked for: the caller gets false and nil, as for a slot
// that was run. Nor is a slot that came while a run of the name went on, unless a call for it comes
// after that run and before a later slot has one. So a process catches up that names the latest
// time of its schedule once as it starts: one run, late, for all that were missed. The latest slot
// of each name is remembered for ever, the others for as long as the reaper's History says. A name
// may pass from OncePer to OnceAt and back: a run of OncePer that began at the slot's time or later
// counts as its run, and a slot of OncePer in which a run of OnceAt began counts as run.
//
// A slot is a moment, and the zone in which it is written does not matter: 2:30 in Berlin and 1:30
// in UTC are one. The schedule decides which moments there are on a day on which a clock is moved.
// Those of a Schedule are as cron has them: one for 2:30 on the day without 2:30, and one on the
// day with two. Schedule.Latest is the slot to name.
//
// fn is told its slot. Errors are those of OncePer. ErrInvalidOption for a slot before 1971, such
// as the zero time, or after 9999. ErrInvalidOption also for one that is more than a minute ahead
// of the database's clock, which is asked when nobody else runs the job: such a slot would keep all
// those before it from being run. The error shows both times in the zone of the slot.
func (c *Client[TX]) OnceAt(ctx context.Context, name string, slot time.Time, fn func(ctx context.Context, l *Lock, slot time.Time) error, options ...RunOption) (ran bool, err error) {
	if slot.Before(firstMoment) || slot.Year() > lastYear {
		return false, &LockError{"onceat", name, fmt.Errorf("%w: a slot at %v: want 1971 to %d", ErrInvalidOption, slot, lastYear)}
	}
	return c.once(ctx, "onceat", name, driver.Slot{Moment: slot.Truncate(time.Microsecond).UnixMicro()}, slot.Location(), fn, options)
}

// once is OncePer and OnceAt.
func (c *Client[TX]) once(ctx context.Context, op, name string, slot driver.Slot, zone *time.Location, fn func(ctx context.Context, l *Lock, slot time.Time) error, options []RunOption) (ran bool, err error) {
	job, err := c.jobOf(ctx, name, slot, zone, fn, options)
	if err != nil {
		return false, &LockError{op, name, err}
	}
	done := c.Core().Do(ctx, *job)
	return done.Ran, driver.Join(done.Outcome, fail(op, name, done.Failure))
}

// jobOf validates what is asked for.
func (c *Client[TX]) jobOf(ctx context.Context, name string, slot driver.Slot, zone *time.Location, fn func(ctx context.Context, l *Lock, slot time.Time) error, options []RunOption) (*client.Job, error) {
	var config runConfig
	for _, o := range options {
		if o == nil {
			return nil, fmt.Errorf("%w: a nil RunOption", ErrInvalidOption)
		}
		o(&config)
	}
	if err := contract.CheckText(name); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidName, err)
	}
	switch {
	case ctx == nil:
		return nil, fmt.Errorf("%w: the context is nil", ErrInvalidOption)
	case fn == nil:
		return nil, fmt.Errorf("%w: fn is nil", ErrInvalidOption)
	case config.retries && (config.retry.Most < 1 || config.retry.Backoff < 0):
		return nil, fmt.Errorf("%w: RetryFailed(%d, %v): want at least 1, and no negative backoff", ErrInvalidOption, config.retry.Most, config.retry.Backoff)
	case slot.Moment == 0 && slot.Times == nil && slot.Length < minInterval:
		return nil, fmt.Errorf("%w: an interval of %v: want at least %v", ErrInvalidOption, slot.Length, minInterval)
	}
	want, err := wantOf(onceName(name), nil)
	run := func(ctx context.Context, l *client.Lock, begins time.Time) error {
		return fn(ctx, (*Lock)(l), begins)
	}
	return &client.Job{Name: name, Lock: want, Slot: slot, Retry: config.retry, Zone: zone, Run: run}, err
}

// Runs lists the runs of a job, the latest first. After a change of the interval a run gives its
// place in the list to a later one whose slot has the same number. The iteration ends after the
// first error.
func (c *Client[TX]) Runs(ctx context.Context, name string) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		var before time.Time
		page.Each(0, yield, func(size int) (runs []Run, more bool, err error) {
			var rows []driver.Run
			err = c.inquire(ctx, "runs", name, func(ctx context.Context, engine driver.Backend) (err error) {
				rows, err = engine.Runs(ctx, driver.RunFilter{Name: name, Before: before}, size)
				return err
			})
			for _, r := range rows {
				before = r.Began
				runs = append(runs, runOf(r))
			}
			return runs, len(rows) == size, err
		})
	}
}

// Jobs lists the latest run of each job of OncePer or OnceAt, in the order of the bytes of names, a
// page at a time. A job is listed for as long as the reaper leaves one of its runs (History). The
// iteration ends after the first error.
func (c *Client[TX]) Jobs(ctx context.Context) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		after := ""
		page.Each(0, yield, func(size int) (jobs []Run, more bool, err error) {
			var rows []driver.Run
			err = c.inquire(ctx, "jobs", after, func(ctx context.Context, engine driver.Backend) (err error) {
				rows, err = engine.Runs(ctx, driver.RunFilter{After: after}, size)
				return err
			})
			for _, r := range rows {
				after = r.Name
				jobs = append(jobs, runOf(r))
			}
			return jobs, len(rows) == size, err
		})
	}
}

func runOf(r driver.Run) Run {
	run := Run{
		Name: r.Name, Slot: r.Slot, SlotEnds: r.SlotEnds, Token: r.Token, Host: r.Host, Thread: r.Thread, Began: r.Began,
		Ended: r.Ended, Tries: r.Tries,
	}
	if r.Failed {
		run.Err = r.Detail
	}
	return run
}

// inquire runs a statement that no lock depends on, and repeats it after a race.
func (c *Client[TX]) inquire(ctx context.Context, op, name string, f func(ctx context.Context, engine driver.Backend) error) error {
	return fail(op, name, c.Core().Inquire(ctx, f))
}

func onceName(name string) string { return "once/" + name }
