package gocronlock

import (
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
)

const (
	// early is how long before its time a job may begin, by the clock of its process: that may have
	// been set back since gocron looked at it.
	early = 100 * time.Millisecond
	// longAgo is longer than schedules rest.
	longAgo = 10 * 366 * 24 * time.Hour
)

// Schedule tells the next time of a schedule after a given one; the zero time: there is none. A
// Schedule of github.com/robfig/cron/v3 is one, as its ParseStandard makes it of a cron expression.
type Schedule interface {
	Next(after time.Time) time.Time
}

// At makes a Locker that lets a job run once for each time of a schedule, over all processes, by
// dblock.Client.OnceAt. It is for gocron.CronJob, with the same expression and time zone:
//
//	nightly, err := cron.ParseStandard("CRON_TZ=Europe/Berlin 0 3 * * *")
//	…
//	locker, err := gocronlock.At(client, nightly)
//	…
//	s.NewJob(gocron.CronJob("CRON_TZ=Europe/Berlin 0 3 * * *", false), task, gocron.WithName("nightly"),
//		gocron.WithDistributedJobLocker(locker))
//
// Each process finds the time that was meant by its own clock: it is the latest time of the
// schedule. So processes agree as long as their clocks, and the beginnings of their jobs, are less
// than the schedule's shortest gap apart. Runs of a job do not overlap. A time whose process dies
// counts as run, unless dblock.RetryFailed is given.
//
// ErrInvalidOption for a nil client, schedule or option. Lock returns it where the schedule has had
// no time in the last ten years.
func At[TX any](client *dblock.Client[TX], schedule Schedule, options ...dblock.RunOption) (*Locker, error) {
	switch {
	case client == nil:
		return nil, invalid("the client is nil")
	case schedule == nil:
		return nil, invalid("the schedule is nil")
	}
	return newRunLocker(func(ctx context.Context, name string, during func(l dblock.Handle) error) (bool, error) {
		slot := due(schedule, time.Now())
		if slot.IsZero() {
			return false, fmt.Errorf("job %q: %w", name, invalid("the schedule has had no time in %v", longAgo))
		}
		return client.OnceAt(ctx, name, slot, func(_ context.Context, l *dblock.Lock[TX], _ time.Time) error {
			return during(l)
		}, options...)
	}, options)
}

// due returns the latest time of a schedule that is not after now; the zero time: there is none. A
// Schedule looks ahead only, so the search begins further and further back.
func due(schedule Schedule, now time.Time) (latest time.Time) {
	now = now.Add(early)
	for back := time.Second; latest.IsZero() && back < longAgo; back *= 2 {
		for next := schedule.Next(now.Add(-back)); !next.IsZero() && !next.After(now); next = schedule.Next(next) {
			latest = next
		}
	}
	return latest
}
