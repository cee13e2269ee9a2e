package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/jobs"
)

// zoneStep is the smallest difference between two time zones.
const zoneStep = 15 * time.Minute

// slotPause is the pause before run asks again for a slot after the database was unavailable.
const slotPause = time.Second

// times returns the schedule of --slot-of, in the zone of --tz or of the expression itself.
func (h *holding) times() (*jobs.Schedule, *time.Location, error) {
	zone, err := time.LoadLocation(h.zone)
	if err != nil {
		return nil, nil, fmt.Errorf("--tz: %w", err)
	}
	parsed, err := cron.ParseStandard(sundays(h.slotOf))
	if err != nil {
		return nil, nil, fmt.Errorf("--slot-of: %w", err)
	}
	expression, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, nil, errors.New("--slot-of: @every has no times of its own: use --once-per")
	}
	if expression.Location != time.Local { // CRON_TZ
		zone, expression.Location = expression.Location, time.Local
	}
	schedule, err := jobs.NewSchedule(zone, expression)
	return schedule, zone, err
}

// weekdays are the names that a cron expression has for the days of the week, from 0 on.
var weekdays = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// sundays writes 0 for the 7 that crontab(5) also has for Sunday, and which the parser does not
// know: in the last of the five fields, alone or as the end of a range.
func sundays(expression string) string {
	fields := strings.Fields(expression)
	if len(fields) < 5 {
		return expression
	}
	days := strings.Split(fields[len(fields)-1], ",")
	for i, part := range days {
		span, step, stepped := strings.Cut(part, "/")
		from, to, ranged := strings.Cut(span, "-")
		switch {
		case span == "7":
			days[i] = "0"
		case ranged && to == "7":
			first, each := slices.Index(weekdays, strings.ToLower(from)), 1
			if n, err := strconv.Atoi(from); err == nil {
				first = n
			}
			if n, err := strconv.Atoi(step); stepped {
				if each = n; err != nil || n < 1 {
					return expression // which the parser refuses
				}
			}
			if first < 0 || first > 7 {
				return expression
			}
			var list []string
			for day := first; day <= 7; day += each {
				list = append(list, strconv.Itoa(day%7))
			}
			days[i] = strings.Join(list, ",")
		}
	}
	fields[len(fields)-1] = strings.Join(days, ",")
	return strings.Join(fields, " ")
}

// slot returns the latest time of the cron expression. due is false if that time is too long ago.
// If it is so long ago that the expression must be meant for another time zone, or for another
// time, slot returns an error.
func (h *holding) slot(now time.Time) (slot time.Time, due bool, err error) {
	schedule, zone, err := h.times()
	if err != nil {
		return time.Time{}, false, err
	}
	slot = schedule.Latest(now)
	late := now.Sub(slot)
	if !slot.IsZero() && late <= h.late {
		return slot, true, nil
	}
	was := "there was none in ten years"
	if !slot.IsZero() {
		was = fmt.Sprintf("the latest was %s, %v ago", inZone(slot), late.Round(time.Second))
	}
	next := "there is none to come"
	if at := schedule.Next(now); !at.IsZero() {
		next = "the next is " + inZone(at)
	}
	why := fmt.Errorf("nothing is run: %q has no time within the last %v (--late) in the zone of --tz, %s: %s; %s; "+
		"now it is %s there",
		h.slotOf, h.late, zoneName(zone, now), was, next, inZone(now.In(zone)))
	if slot.IsZero() || late >= h.late+zoneStep {
		return slot, false, fmt.Errorf("%w: run this at the times of the expression, or give their zone with --tz", why)
	}
	complain(h.stderr, why)
	return slot, false, nil
}

// inZone formats a time with its zone.
func inZone(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST (-07:00)") }

// zoneName describes a zone and its offset at a time.
func zoneName(zone *time.Location, at time.Time) string {
	name := zone.String()
	if zone == time.Local {
		name = "this host's"
	}
	return name + at.In(zone).Format(" (MST, -07:00)")
}

// once runs the command for a slot.
func (h *holding) once(ctx context.Context, c *dblock.Client[*sql.Tx], command []string) error {
	// A signal ends the attempt. It does not end a run: the outcome of a run must be written.
	attempt, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	fn := func(_ context.Context, l *dblock.Lock, _ time.Time) error {
		if !stop() {
			return context.Cause(ctx)
		}
		return h.supervise(ctx, holdOf(c, l), command)
	}
	if h.oncePer != 0 {
		_, err := jobs.New(c).OncePer(attempt, h.names[0], h.oncePer, fn, h.retrying()...)
		return err
	}
	slot, due, err := h.slot(time.Now())
	if err != nil || !due {
		return err
	}
	return h.insist(attempt, slot, func() (bool, error) {
		return jobs.New(c).OnceAt(attempt, h.names[0], slot, fn, h.retrying()...)
	})
}

// retrying returns the options of the job.
func (h *holding) retrying() []jobs.Option {
	if h.retries == 0 {
		return nil
	}
	return []jobs.Option{jobs.RetryFailed(h.retries, h.backoff)}
}

// insist asks for a slot until the database answers, or until the slot is too late.
func (h *holding) insist(ctx context.Context, slot time.Time, ask func() (ran bool, err error)) error {
	for told := false; ; told = true {
		ran, err := ask()
		away := errors.Is(err, dblock.ErrUnavailable) || errors.Is(err, dblock.ErrReadOnly)
		if ran || !away || ctx.Err() != nil || time.Since(slot) > h.late {
			return err
		}
		if !told {
			complain(h.stderr, fmt.Errorf("the slot %s of %q is tried until it is %v late (--late): %w", inZone(slot),
				h.names[0], h.late, err))
		}
		select {
		case <-time.After(slotPause):
		case <-ctx.Done():
		}
	}
}
