package jobs

import (
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
)

// longestGap is longer than the longest gap between two times of a schedule: 29 February is missing
// in some fourth years.
const longestGap = 10 * 366 * 24 * time.Hour

// Schedule is the times at which a job is due, by the wall clock of a zone. On a day on which that
// clock is put forward or back a job runs as on any other day, as it does with cron:
//
//   - A time that the clock skips is due when the clock is put forward: 2:30 at the new 3:00.
//     Several of them are one.
//   - Of a time that the clock shows twice the first is due.
//   - Neither rule holds for a job that is due each hour: it has a run for each hour that exists,
//     and none for the skipped one. A time is such if the schedule also has the times an hour
//     earlier and an hour later.
//
// A Schedule is safe for concurrent use if its times are. Such times are a Schedule of
// github.com/robfig/cron/v3, and a *Schedule is in turn a Schedule of that package.
type Schedule struct {
	zone  *time.Location
	times interface{ Next(time.Time) time.Time }
}

// NewSchedule makes a Schedule of times in a zone. Next of times returns the first time after the
// given one, in the location of the given one, or the zero time if there is none. ParseStandard of
// github.com/robfig/cron/v3 makes such times of a cron expression without CRON_TZ:
//
//	nightly, err := cron.ParseStandard("30 2 * * *")
//	…
//	schedule, err := jobs.NewSchedule(berlin, nightly) // berlin, err := time.LoadLocation("Europe/Berlin")
//
// Processes that share a job must give the same zone: time.Local may differ between hosts.
//
// ErrInvalidOption for nil, for times that depend on when they are asked for ("@every 5m": that is
// for Every), and, but in UTC, for times of a zone of their own (CRON_TZ).
func NewSchedule(zone *time.Location, times interface {
	Next(after time.Time) time.Time
}) (*Schedule, error) {
	if zone == nil || times == nil {
		return nil, invalid("a schedule without a zone or without times")
	}
	now := time.Now().UTC()
	next := times.Next(now)
	if next.IsZero() {
		return &Schedule{zone, times}, nil
	}
	if !times.Next(next.Add(-1)).Equal(next) {
		return nil, invalid("the schedule's times depend on when it is asked for them: use OncePer or Every")
	}
	elsewhere := time.FixedZone("", 5*3600+37*60+13) // no minute begins there when one begins in now's zone
	if zone != time.UTC && next.Sub(now) > time.Second && times.Next(now.In(elsewhere)).Equal(next) {
		return nil, invalid(fmt.Sprintf("the schedule has a time zone of its own: make it without CRON_TZ, "+
			"since the zone is given to NewSchedule (%v)", zone))
	}
	return &Schedule{zone, times}, nil
}

func invalid(why string) error { return fmt.Errorf("dblock: %w: %s", dblock.ErrInvalidOption, why) }

// Next returns the first time of the schedule after a given one, in the schedule's zone; the zero
// time: there is none.
func (s *Schedule) Next(after time.Time) time.Time {
	for at := after.In(s.zone); ; {
		begins, ends := at.ZoneBounds() // of the offset that holds at the time
		next := s.under(after, at, begins)
		if next.IsZero() || ends.IsZero() || next.Before(ends) {
			return next
		}
		after, at = ends.Add(-1), ends
	}
}

// under returns the first time after a given one under the offset that holds at at, since began.
func (s *Schedule) under(after, at, began time.Time) time.Time {
	_, offset := at.Zone()
	next := s.wall(after, offset)
	if began.IsZero() {
		return next
	}
	_, before := began.Add(-1).Zone()
	forward := time.Duration(offset-before) * time.Second
	if after.Before(began) && forward > 0 && s.single(began, before, forward) { // the clock skipped some times
		return began.In(s.zone)
	}
	for !next.IsZero() && next.Before(began.Add(-forward)) && !s.hourly(next, offset) { // the clock showed it before
		next = s.wall(next, offset)
	}
	return next
}

// single reports whether the schedule has a time, from a given time on for within, that is not due
// each hour.
func (s *Schedule) single(from time.Time, offset int, within time.Duration) bool {
	end := from.Add(within)
	for next := s.wall(from.Add(-1), offset); !next.IsZero() && next.Before(end); next = s.wall(next, offset) {
		if !s.hourly(next, offset) {
			return true
		}
	}
	return false
}

// wall returns the first time after a given one of a wall clock with a constant offset.
func (s *Schedule) wall(after time.Time, offset int) time.Time {
	ahead := time.Duration(offset) * time.Second
	next := s.times.Next(after.UTC().Add(ahead))
	if next.IsZero() {
		return next
	}
	return next.Add(-ahead).In(s.zone)
}

// hourly reports whether the schedule has the time an hour earlier and an hour later as well.
func (s *Schedule) hourly(at time.Time, offset int) bool {
	for _, other := range []time.Time{at.Add(-time.Hour), at.Add(time.Hour)} {
		if !s.wall(other.Add(-1), offset).Equal(other) {
			return false
		}
	}
	return true
}

// Latest returns the latest time of the schedule that is not after now, in the schedule's zone; the
// zero time: there was none in ten years.
func (s *Schedule) Latest(now time.Time) (latest time.Time) {
	for back := time.Second; latest.IsZero() && back < longestGap; back *= 2 { // a schedule finds later times only
		for next := s.Next(now.Add(-back)); !next.IsZero() && !next.After(now); next = s.Next(next) {
			latest = next
		}
	}
	return latest
}
