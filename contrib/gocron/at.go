package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/jobs"
)

// early is the time by which a job may begin early, by the clock of its process: that clock may
// have been set back since gocron read it.
const early = 100 * time.Millisecond

// Schedule returns the next time of a schedule after a given one; the zero time: there is none. A
// Schedule of github.com/robfig/cron/v3 is one, as its ParseStandard makes it of a cron expression.
type Schedule interface {
	Next(after time.Time) time.Time
}

// At makes a Locker that lets a job run once for each time of a schedule, over all processes, by
// OnceAt of package jobs. It is for gocron.CronJob, with the same expression and time zone:
//
//	nightly, err := cron.ParseStandard("CRON_TZ=Europe/Berlin 30 2 * * *")
//	…
//	locker, err := gocronlock.At(client, nightly)
//	…
//	s.NewJob(gocron.CronJob("CRON_TZ=Europe/Berlin 30 2 * * *", false), task, gocron.WithName("nightly"),
//		gocron.WithDistributedJobLocker(locker),
//		gocron.WithCronImplementation(&gocronlock.Cron{}))
//
// The zone of an expression without CRON_TZ is time.Local, as in gocron without
// gocron.WithLocation. On days on which the clock of the zone is moved, the times are those of
// jobs.Schedule. Without Cron, gocron leaves out a job in the night that has no 2:30.
//
// Each process finds the intended time by its own clock: the latest time of the schedule. So
// processes agree if their clocks, and the beginnings of their jobs, differ by less than the
// schedule's shortest gap. Runs of a job do not overlap. A time whose process dies counts as run,
// unless jobs.RetryFailed is given.
//
// schedule is a *jobs.Schedule, which jobs.NewSchedule makes of a cron expression, or another
// schedule, which is asked for its times in time.Local. At returns ErrInvalidOption for a nil
// client or schedule, and for a schedule that jobs.NewSchedule refuses. Lock returns
// ErrInvalidOption if the schedule has had no time in the last ten years.
func At[TX any](client *dblock.Client[TX], schedule Schedule, options ...jobs.Option) (*Locker, error) {
	switch {
	case client == nil:
		return nil, invalid("the client is nil")
	case schedule == nil:
		return nil, invalid("the schedule is nil")
	}
	times, err := timesOf(schedule)
	if err != nil {
		return nil, err
	}
	return newRunLocker(func(ctx context.Context, name string, during func(l dblock.Handle) error) (bool, error) {
		slot := times.Latest(time.Now().Add(early))
		if slot.IsZero() {
			return false, fmt.Errorf("job %q: %w", name, invalid("the schedule has had no time in ten years"))
		}
		return jobs.New(client).OnceAt(ctx, name, slot, func(_ context.Context, l *dblock.Lock, _ time.Time) error {
			return during(l)
		}, options...)
	}), nil
}

// timesOf returns a schedule by the wall clock of its zone.
func timesOf(schedule Schedule) (*jobs.Schedule, error) {
	switch s := schedule.(type) {
	case *jobs.Schedule:
		return s, nil
	case *cron.SpecSchedule:
		anywhere := *s
		anywhere.Location = time.Local // Next uses the location of its argument
		return jobs.NewSchedule(s.Location, &anywhere)
	}
	return jobs.NewSchedule(time.Local, schedule)
}

// Cron makes gocron run a CronJob at the times of jobs.Schedule: once in a night that has no 2:30,
// and once in a night that has two. It is for gocron.WithCronImplementation, one for each job. The
// zone is that of the expression (CRON_TZ) or of the scheduler.
type Cron struct{ times *jobs.Schedule }

var _ gocron.Cron = (*Cron)(nil)

// IsValid parses the expression, of five fields, or of six with seconds.
func (c *Cron) IsValid(crontab string, location *time.Location, now time.Time) error {
	parsed,
		err :=
		cron.NewParser(
			cron.SecondOptional | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).Parse(
			crontab)
	if err != nil {
		return errors.Join(gocron.ErrCronJobParse, err)
	}
	if spec, ok := parsed.(*cron.SpecSchedule); ok && spec.Location == time.Local {
		spec.Location = location
	}
	if c.times, err = timesOf(parsed); err != nil {
		return errors.Join(gocron.ErrCronJobParse, err)
	}
	if c.times.Next(now).IsZero() {
		return gocron.ErrCronJobInvalid
	}
	return nil
}

// Next returns the first time of the schedule after a given one.
func (c *Cron) Next(after time.Time) time.Time { return c.times.Next(after) }
