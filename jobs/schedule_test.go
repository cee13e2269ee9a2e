package jobs_test

import (
	"errors"
	"slices"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
)

// daily are the times of a cron expression with these minutes and hours.
type daily struct{ minutes, hours []int }

func (d daily) Next(after time.Time) time.Time {
	for t := after.Truncate(time.Minute).Add(time.Minute); ; t = t.Add(time.Minute) {
		if slices.Contains(d.minutes, t.Minute()) && (d.hours == nil || slices.Contains(d.hours, t.Hour())) {
			return t
		}
	}
}

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	require.NoError(t, err)
	return zone
}

func TestAScheduleRunsOnDaysOnWhichTheClockIsMoved(t *testing.T) {
	quarters := daily{minutes: []int{0, 15, 30, 45}}
	for _, c := range []struct {
		says, zone string
		times      daily
		from       string
		want       []string
	}{
		{"a day without 2:30", "Europe/Berlin", daily{[]int{30}, []int{2}}, "2026-03-27T12:00:00+01:00",
			[]string{"2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"}},
		{"a day with two 2:30", "Europe/Berlin", daily{[]int{30}, []int{2}}, "2026-10-24T00:00:00+02:00",
			[]string{"2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"}},
		{"from within the second 2 o'clock", "Europe/Berlin", daily{[]int{30}, []int{2}}, "2026-10-25T02:10:00+01:00",
			[]string{"2026-10-26T02:30:00+01:00"}},
		{"from the moment of the change", "Europe/Berlin",
			daily{[]int{0}, []int{2}}, "2026-03-29T01:59:59.999999999+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"several times that are skipped", "Europe/Berlin",
			daily{[]int{0, 10, 50}, []int{2}}, "2026-03-28T02:30:00+01:00",
			[]string{"2026-03-28T02:50:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"}},
		{"each hour at half past, forward", "Europe/Berlin", daily{[]int{30}, nil}, "2026-03-29T00:45:00+01:00",
			[]string{"2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00", "2026-03-29T04:30:00+02:00"}},
		{"a time that is skipped and the one after it", "Europe/Berlin",
			daily{[]int{30}, []int{2, 3}}, "2026-03-29T00:00:00+01:00",
			[]string{"2026-03-29T03:00:00+02:00", "2026-03-29T03:30:00+02:00", "2026-03-30T02:30:00+02:00",
				"2026-03-30T03:30:00+02:00"}},
		{"the hour before the change", "Europe/Berlin", daily{[]int{30}, []int{1}}, "2026-10-25T00:00:00+02:00",
			[]string{"2026-10-25T01:30:00+02:00", "2026-10-26T01:30:00+01:00"}},
		{"each quarter of an hour, forward", "Europe/Berlin", quarters, "2026-03-29T01:40:00+01:00",
			[]string{"2026-03-29T01:45:00+01:00", "2026-03-29T03:00:00+02:00", "2026-03-29T03:15:00+02:00"}},
		{"each quarter of an hour, back", "Europe/Berlin", quarters, "2026-10-25T02:40:00+02:00",
			[]string{"2026-10-25T02:45:00+02:00", "2026-10-25T02:00:00+01:00", "2026-10-25T02:15:00+01:00",
				"2026-10-25T02:30:00+01:00", "2026-10-25T02:45:00+01:00",
				"2026-10-25T03:00:00+01:00"}},
		{"quarters of one hour, back", "Europe/Berlin", daily{[]int{0, 30}, []int{2}}, "2026-10-25T00:00:00+02:00",
			[]string{"2026-10-25T02:00:00+02:00", "2026-10-25T02:30:00+02:00", "2026-10-26T02:00:00+01:00"}},
		{"a midnight that is skipped", "America/Sao_Paulo", daily{[]int{0}, []int{0}}, "2018-11-03T12:00:00-03:00",
			[]string{"2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"}},
		{"half an hour", "Australia/Lord_Howe", daily{[]int{15}, []int{2}}, "2026-10-03T12:00:00+10:30",
			[]string{"2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"}},
		{"a day that is skipped", "Pacific/Apia", daily{[]int{30}, []int{2}}, "2011-12-28T12:00:00-10:00",
			[]string{"2011-12-29T02:30:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T02:30:00+14:00",
				"2012-01-01T02:30:00+14:00"}},
		{"no daylight saving", "UTC", daily{[]int{30}, []int{2}}, "2026-03-28T12:00:00Z",
			[]string{"2026-03-29T02:30:00Z", "2026-03-30T02:30:00Z"}},
	} {
		schedule, err := jobs.NewSchedule(zone(t, c.zone), c.times)
		require.NoError(t, err)
		next, err := time.Parse(time.RFC3339Nano, c.from)
		require.NoError(t, err)
		var got []string
		for range c.want {
			before := next
			next = schedule.Next(next)
			if latest := schedule.Latest(next.Add(time.Second)); !latest.Equal(next) {
				t.Errorf("%s: the latest just after %v is %v", c.says, next, latest)
			}
			if latest := schedule.Latest(next.Add(-1)); latest.After(before) {
				t.Errorf("%s: the latest before %v is %v, after %v", c.says, next, latest, before)
			}
			got = append(got, next.Format(time.RFC3339))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n%q, want\n%q", c.says, got, c.want)
		}
	}
}

func TestAScheduleOfEachNightHasARunForEachNightOfAYear(t *testing.T) {
	for _, where := range []string{
		"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tehran", "Africa/Casablanca", "UTC",
	} {
		in := zone(t, where)
		for minute := 0; minute < 4*60; minute += 20 {
			schedule, err := jobs.NewSchedule(in, daily{[]int{minute % 60}, []int{minute / 60}})
			require.NoError(t, err)
			n, last := 0, time.Date(2021, 1, 1, 0, 0, 0, -1, in)
			for next := schedule.Next(last); next.Year() == 2021; next = schedule.Next(next) {
				if gap := next.Sub(last); n > 0 && (gap < 22*time.Hour || gap > 26*time.Hour) {
					t.Errorf("%s: %v after %v", where, next, last)
				}
				last = next
				n++
			}
			if n != 365 {
				t.Errorf("%s: %d runs at minute %d of the day in a year", where, n, minute)
			}
		}
	}
}

type timesFunc func(after time.Time) time.Time

func (f timesFunc) Next(after time.Time) time.Time { return f(after) }

func TestAScheduleThatCannotBeRightIsRefused(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	elsewhere := timesFunc(func(after time.Time) time.Time { return daily{[]int{30}, []int{2}}.Next(after.In(berlin)) })
	delay := timesFunc(func(after time.Time) time.Time { return after.Add(5 * time.Minute) })
	never := timesFunc(func(time.Time) time.Time { return time.Time{} })
	seconds := timesFunc(func(after time.Time) time.Time { return after.Truncate(time.Second).Add(time.Second) })
	for _, c := range []struct {
		says  string
		zone  *time.Location
		times interface{ Next(time.Time) time.Time }
		want  error
	}{
		{"no zone", nil, seconds, dblock.ErrInvalidOption},
		{"no times", berlin, nil, dblock.ErrInvalidOption},
		{"a delay", time.UTC, delay, dblock.ErrInvalidOption},
		{"a zone of its own", berlin, elsewhere, dblock.ErrInvalidOption},
		{"a zone of its own, in UTC", time.UTC, elsewhere, nil},
		{"each second", berlin, seconds, nil},
		{"never", berlin, never, nil},
	} {
		schedule, err := jobs.NewSchedule(c.zone, c.times)
		if !errors.Is(err, c.want) || err != nil && schedule != nil {
			t.Errorf("%s: %v, want %v", c.says, err, c.want)
		}
	}
	schedule, err := jobs.NewSchedule(berlin, never)
	require.NoError(t, err)
	if next, latest := schedule.Next(time.Now()), schedule.Latest(time.Now()); !next.IsZero() || !latest.IsZero() {
		t.Errorf("a schedule without times: %v, %v", next, latest)
	}
}
