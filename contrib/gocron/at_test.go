package gocronlock

import (
	"database/sql"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/assert"
	"github.com/dblock-go/dblock/internal/testing/require"
	"github.com/dblock-go/dblock/jobs"
)

func TestTheTimeThatWasMeantIsTheLatestOfTheSchedule(t *testing.T) {
	at := func(text string) time.Time {
		when, err := time.Parse(time.RFC3339Nano, text)
		require.NoError(t, err)
		return when
	}
	for _, c := range []struct{ schedule, now, want string }{
		{"0 3 * * *", "2026-11-23T03:00:00Z", "2026-11-23T03:00:00Z"},
		{"0 3 * * *", "2026-11-23T02:59:59.95Z", "2026-11-23T03:00:00Z"}, // the clock was set back a little
		{"0 3 * * *", "2026-11-23T02:59:59.8Z", "2026-11-22T03:00:00Z"},
		{"0 3 * * *", "2026-11-23T23:00:00Z", "2026-11-23T03:00:00Z"},
		{"* * * * *", "2026-11-23T03:07:59.5Z", "2026-11-23T03:07:00Z"},
		{"* 3 * * *", "2026-11-23T17:00:00Z", "2026-11-23T03:59:00Z"},
		{"0 0 29 2 *", "2026-11-23T00:00:00Z", "2024-02-29T00:00:00Z"},
		{"CRON_TZ=Europe/Berlin 0 3 * * *", "2026-11-23T02:00:01Z", "2026-11-23T02:00:00Z"},
		// that night has no half past two
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-29T12:00:00Z", "2026-03-29T01:00:00Z"},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-25T01:30:00Z", "2026-10-25T00:30:00Z"}, // and that one has two
	} {
		schedule, err := cron.ParseStandard(c.schedule)
		require.NoError(t, err)
		times, err := timesOf(schedule)
		require.NoError(t, err)
		if due := times.Latest(at(c.now).UTC().Add(early)); !due.Equal(at(c.want)) {
			t.Errorf("%s at %s: %v, not %s", c.schedule, c.now, due, c.want)
		}
	}
	for says, schedule := range map[string]Schedule{"@every": cron.Every(time.Minute), "a zone of its own": berlin{}} {
		assert.ErrorIs(t, assert.ErrOf(timesOf(schedule)), dblock.ErrInvalidOption, says)
	}
}

// berlin has one time a day, in a zone of its own.
type berlin struct{}

func (berlin) Next(after time.Time) time.Time {
	return after.Truncate(24 * time.Hour).Add(24 * time.Hour)
}

// Broken by times that a clock skips or shows twice: in 2000 it was moved on 26 March and 29
// October.
func TestANightlyJobRunsOnceInNightsInWhichTheClockIsMoved(t *testing.T) {
	in, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	const nightly = "CRON_TZ=Europe/Berlin 30 2 * * *"
	schedule, err := cron.ParseStandard(nightly)
	require.NoError(t, err)
	for _, c := range []struct {
		from time.Time
		want []string
	}{
		{time.Date(2000, 3, 24, 12, 0, 0, 0, in), []string{"25 02:30 +0100", "26 03:00 +0200", "27 02:30 +0200"}},
		{time.Date(2000, 10, 27, 12, 0, 0, 0, in), []string{"28 02:30 +0200", "29 02:30 +0200", "30 02:30 +0100"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(c.from))
			fake := dblocktest.New[*sql.Tx](t)
			var ran atomic.Int64
			for i := range 3 {
				process := fake
				if i > 0 {
					process = fake.Another(t)
				}
				locker, err := At(process.Client, schedule)
				require.NoError(t, err)
				s, err := gocron.NewScheduler()
				require.NoError(t, err)
				defer func() { _ = s.Shutdown() }()
				_, err = s.NewJob(gocron.CronJob(nightly, false), gocron.NewTask(func() { ran.Add(1) }),
					gocron.WithName("nightly"),
					gocron.WithDistributedJobLocker(locker), gocron.WithCronImplementation(&Cron{}))
				require.NoError(t, err)
				s.Start()
			}
			time.Sleep(72 * time.Hour)
			var slots []string
			for run, err := range jobs.New(fake.Client).Runs(t.Context(), "nightly") {
				require.NoError(t, err)
				slots = append(slots, run.SlotEnds.In(in).Format("2 15:04 -0700"))
			}
			slices.Reverse(slots)
			if !slices.Equal(slots, c.want) || int(ran.Load()) != len(c.want) {
				t.Errorf("%d runs, of %q, want %q", ran.Load(), slots, c.want)
			}
		})
	}
}

func TestAnExpressionIsByTheZoneOfTheSchedulerOrItsOwn(t *testing.T) {
	in, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	now := time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)
	for expression, want := range map[string]string{
		"30 2 * * *":                         "2026-11-23T01:30:00Z",
		"CRON_TZ=America/New_York 0 3 * * *": "2026-11-23T08:00:00Z",
		"5 0 3 * * *":                        "2026-11-23T02:00:05Z",
		"@daily":                             "2026-11-23T23:00:00Z",
		"at dawn":                            "",
		"@every 5m":                          "",
		"0 0 30 2 *":                         "",
	} {
		var c Cron
		if err := c.IsValid(expression, in, now); (err == nil) != (want != "") {
			t.Errorf("%s: %v", expression, err)
		} else if want != "" && c.Next(now).UTC().Format(time.RFC3339) != want {
			t.Errorf("%s: %v, want %s", expression, c.Next(now), want)
		}
	}
}
