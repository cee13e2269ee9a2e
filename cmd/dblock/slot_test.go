package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/internal/testing/require"
)

func TestASlotThatIsTooLongAgoIsNotRun(t *testing.T) {
	w := onSQLite(t)
	for _, c := range []struct {
		arguments []string
		says      string
	}{
		{[]string{"--slot-of", "0 0 29 2 *", "--late", "1ns"}, "in the zone of --tz, this host's ("},
		{[]string{"--slot-of", "0 0 29 2 *", "--tz", "Europe/Berlin"}, "in the zone of --tz, Europe/Berlin (CE"},
		{[]string{"--slot-of", "0 0 30 2 *", "--tz", "UTC"}, "there was none in ten years"},
	} {
		s := w.process(append(append([]string{"run"}, c.arguments...), "leap", "--", "false")...)
		if s.status != exitFailed || !strings.Contains(s.err, "nothing is run") || !strings.Contains(s.err, c.says) {
			t.Errorf("%q: %+v, want %q", c.arguments, s, c.says)
		}
	}
}

// As crontab(5) of Vixie cron has it.
func TestSevenIsSunday(t *testing.T) {
	for expression, days := range map[string]string{
		"7": "Sun", "0": "Sun", "5-7": "FriSatSun", "Fri-7": "FriSatSun", "1-7/3": "MonThuSun", "7,2": "TueSun",
		"0-7": "MonTueWedThuFriSatSun", "6-7/1": "SatSun", "7-7": "Sun",
	} {
		h := holding{slotOf: "30 4 * * " + expression, zone: "UTC"}
		schedule, _, err := h.times()
		require.NoError(t, err, expression)
		got := ""
		for at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC); ; { // a Monday
			if at = schedule.Next(at); at.Day() > 6 && at.Month() == time.December {
				break
			}
			got += at.Format("Mon")
		}
		require.Equal(t, got, days, expression)
	}
	for _, wrong := range []string{"8", "7-8", "x-7", "1-7/x", "1-7/0", "8-7", "7-5"} {
		h := holding{slotOf: "30 4 * * " + wrong, zone: "UTC"}
		if _, _, err := h.times(); err == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
}

// Broken by a zone that is not the host's, and by times that a clock skips or shows twice.
func TestASlotIsTheLatestTimeThatIsNotTooLongAgo(t *testing.T) {
	at := func(text string) time.Time {
		moment, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return moment
	}
	const tooLate, mistaken = "too late", "mistaken"
	for _, c := range []struct {
		expression, zone string
		late             time.Duration
		now, want        string
	}{
		{"0 3 * * *", "UTC", 10 * time.Minute, "2026-11-23T03:00:00Z", "2026-11-23T03:00:00Z"},
		{"0 3 * * *", "UTC", 10 * time.Minute, "2026-11-23T03:09:59Z", "2026-11-23T03:00:00Z"},
		{"0 3 * * *", "UTC", 10 * time.Minute, "2026-11-23T03:10:01Z", tooLate},
		{"0 3 * * *", "UTC", 10 * time.Minute, "2026-11-23T03:25:00Z", mistaken},
		{"0 3 * * *", "UTC", 10 * time.Minute, "2026-11-23T02:00:00Z", mistaken}, // 3:00 in Berlin
		{"0 3 * * *", "UTC", 24 * time.Hour, "2026-11-23T02:00:00Z", "2026-11-22T03:00:00Z"},
		{"0 3 * * *", "Europe/Berlin", 10 * time.Minute, "2026-11-23T02:05:00Z", "2026-11-23T02:00:00Z"},
		{"CRON_TZ=Europe/Berlin 0 3 * * *", "UTC", 10 * time.Minute, "2026-11-23T02:05:00Z", "2026-11-23T02:00:00Z"},
		{"* * * * *", "UTC", time.Hour, "2026-11-23T03:05:30Z", "2026-11-23T03:05:00Z"},
		{"30 2 29 2 *", "UTC", time.Minute, "2028-02-29T02:30:30Z", "2028-02-29T02:30:00Z"},
		// when cron runs it
		{"30 2 * * *", "Europe/Berlin", 10 * time.Minute, "2026-03-29T03:00:01+02:00", "2026-03-29T03:00:00+02:00"},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "UTC", 10 * time.Minute, "2026-03-29T03:00:01+02:00",
			"2026-03-29T03:00:00+02:00"},
		{"30 2 * * *", "Europe/Berlin", 10 * time.Minute, "2026-10-25T02:30:01+02:00", "2026-10-25T02:30:00+02:00"},
		// the same slot
		{"30 2 * * *", "Europe/Berlin", 2 * time.Hour, "2026-10-25T02:30:01+01:00", "2026-10-25T02:30:00+02:00"},
		{"*/15 * * * *", "Europe/Berlin", 10 * time.Minute, "2026-10-25T02:30:01+01:00", "2026-10-25T02:30:00+01:00"},
	} {
		h := holding{slotOf: c.expression, zone: c.zone, late: c.late, stderr: io.Discard}
		slot, due, err := h.slot(at(c.now))
		switch {
		case c.want == mistaken && (due || err == nil), c.want == tooLate && (due || err != nil):
			t.Errorf("%s at %s: %v, %v, %v: want %s", c.expression, c.now, slot, due, err, c.want)
		case c.want != mistaken && c.want != tooLate && (err != nil || !due || !slot.Equal(at(c.want))):
			t.Errorf("%s at %s: %v, %v, %v: want %s", c.expression, c.now, slot, due, err, c.want)
		}
	}
}

func TestTheZoneOfASlotIsTheHosts(t *testing.T) {
	w := onSQLite(t)
	now := time.Now()
	for _, zone := range []string{"Etc/GMT-7", "Etc/GMT+4"} {
		in, err := time.LoadLocation(zone)
		require.NoError(t, err)
		c := w.command("run", "--late", "1h", "--slot-of", now.In(in).Format("4 15 * * *"), "at "+zone, "--", "echo",
			"it ran")
		c.Env = append(c.Env, "TZ="+zone)
		if s := outcome(t, c); s.status != 0 || !strings.Contains(s.out, "it ran") {
			t.Errorf("%s: %+v", zone, s)
		}
	}
}

// Broken by one attempt, and by attempts that go on when the slot is too late.
func TestASlotIsTriedWhileItsDatabaseIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trouble := errors.New("trouble")
		for _, c := range []struct {
			says      string
			away      time.Duration
			kind      error
			ran       bool
			last      error
			took      time.Duration
			complains bool
		}{
			{"for a moment", 90 * time.Second, dblock.ErrUnavailable, true, nil, 90 * time.Second, true},
			{"in a failover", 90 * time.Second, dblock.ErrReadOnly, true, nil, 90 * time.Second, true},
			{"for longer than --late", time.Hour, dblock.ErrUnavailable, false, nil, 10*time.Minute + slotPause, true},
			{"the command has failed", 0, nil, true, errors.Join(trouble, dblock.ErrUnavailable), 0, false},
			{"another error", time.Hour, dblock.ErrSchema, false, nil, 0, false},
		} {
			var screen bytes.Buffer
			h := holding{names: []string{"n"}, late: 10 * time.Minute, stderr: &screen}
			began := time.Now()
			err := h.insist(t.Context(), began, func() (bool, error) {
				if time.Since(began) < c.away {
					return false, c.kind
				}
				return true, c.last
			})
			want := c.last
			if !c.ran {
				want = c.kind
			}
			if took := time.Since(began); took != c.took || !errors.Is(err, want) || (screen.Len() > 0) != c.complains {
				t.Errorf("%s: %v after %v, said %q", c.says, err, took, screen.String())
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		h := holding{names: []string{"n"}, late: time.Hour, stderr: io.Discard}
		began := time.Now()
		if err := h.insist(ctx, began, func() (bool, error) { return false, dblock.ErrUnavailable }); !errors.Is(err,
			dblock.ErrUnavailable) || time.Since(began) > 2*time.Minute {
			t.Errorf("%v, after %v", err, time.Since(began))
		}
	})
}
