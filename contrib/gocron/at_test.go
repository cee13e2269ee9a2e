package gocronlock

import (
	"testing"
	"time"

	"github.com/robfig/cron/v3"
)

func TestTheTimeThatWasMeantIsTheLatestOfTheSchedule(t *testing.T) {
	at := func(text string) time.Time {
		when, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
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
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-29T12:00:00Z", "2026-03-28T01:30:00Z"}, // that night has no half past two
	} {
		schedule, err := cron.ParseStandard(c.schedule)
		if err != nil {
			t.Fatal(err)
		}
		if due := due(schedule, at(c.now).UTC()); !due.Equal(at(c.want)) {
			t.Errorf("%s at %s: %v, not %s", c.schedule, c.now, due, c.want)
		}
	}
	if due := due(never{}, time.Now()); !due.IsZero() {
		t.Errorf("a schedule without times: %v", due)
	}
}

type never struct{}

func (never) Next(time.Time) time.Time { return time.Time{} }
