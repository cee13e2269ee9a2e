package jobs_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/example"
	"github.com/dblock-go/dblock/jobs"
)

// newRunner makes a Runner of a client with tables in memory. An application opens a database.
func newRunner(options ...dblock.Option) (r *jobs.Runner, done func()) {
	t := &example.T{}
	return jobs.New(dblocktest.New[*sql.Tx](t, options...).Client), t.End
}

// must ends an example that cannot continue.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// Every server calls it each minute; one of them runs the job of the day.
func ExampleRunner_OncePer() {
	runner, done := newRunner()
	defer done()
	ctx := context.Background()
	cleanUp := func(ctx context.Context, l *dblock.Lock, slot time.Time) error {
		fmt.Println("cleaning up")
		return nil
	}
	for range 3 {
		ran, err := runner.OncePer(ctx, "cleanup", 24*time.Hour, cleanUp)
		fmt.Println(ran, err)
	}
	// Output:
	// cleaning up
	// true <nil>
	// false <nil>
	// false <nil>
}

// A scheduler of cron expressions tells for which time it runs a job. All servers name the slot
// alike, and one of them runs it.
func ExampleRunner_OnceAt() {
	ctx := context.Background()
	runner, done := newRunner()
	defer done()
	report := func(ctx context.Context, l *dblock.Lock, slot time.Time) error {
		fmt.Println("the report of", slot.Format("15:04"))
		return nil
	}
	noon := time.Date(2025, 1, 31, 12, 0, 0, 0, time.UTC)
	for range 3 { // servers
		ran, err := runner.OnceAt(ctx, "report", noon, report)
		fmt.Println(ran, err)
	}
	ran, err := runner.OnceAt(ctx, "report", noon.Add(-time.Hour), report) // a server that is late
	fmt.Println(ran, err)
	// Output:
	// the report of 12:00
	// true <nil>
	// false <nil>
	// false <nil>
	// false <nil>
}

// No server was there at three in the morning. The first that starts catches up.
func ExampleRunner_OnceAt_catchUp() {
	ctx := context.Background()
	runner, done := newRunner()
	defer done()
	schedule := must(jobs.NewSchedule(time.UTC, nightly{3, 0}))
	run := func(ctx context.Context, l *dblock.Lock, slot time.Time) error {
		fmt.Println("the run of", slot.Format("2 January, 15:04"))
		return nil
	}
	start := func(now time.Time) { // each server does so once, as it starts
		ran, err := runner.OnceAt(ctx, "nightly", schedule.Latest(now), run)
		fmt.Println("it ran:", ran, err)
	}
	start(time.Date(2025, 1, 28, 3, 0, 1, 0, time.UTC))
	start(time.Date(2025, 1, 31, 9, 30, 0, 0, time.UTC)) // after two days and a half
	start(time.Date(2025, 1, 31, 9, 31, 0, 0, time.UTC))
	// Output:
	// the run of 28 January, 03:00
	// it ran: true <nil>
	// the run of 31 January, 03:00
	// it ran: true <nil>
	// it ran: false <nil>
}

// Servers in whatever time zone name the same moment. In the night that has half past two twice, it
// is the first.
func ExampleRunner_OnceAt_timeZone() {
	ctx := context.Background()
	runner, done := newRunner()
	defer done()
	berlin := must(time.LoadLocation("Europe/Berlin"))
	schedule := must(jobs.NewSchedule(berlin, nightly{2, 30}))
	run := func(ctx context.Context, l *dblock.Lock, slot time.Time) error {
		fmt.Println("the run of", slot.Format("2 January 15:04 MST"))
		return nil
	}
	first := time.Date(2025, 10, 26, 0, 30, 0, 0, time.UTC)
	for _, now := range []time.Time{first, first.Add(time.Hour)} { // both show 2:30 in Berlin
		ran, err := runner.OnceAt(ctx, "nightly", schedule.Latest(now), run)
		fmt.Println(now.In(berlin).Format("15:04 MST"), ran, err)
	}
	// Output:
	// the run of 26 October 02:30 CEST
	// 02:30 CEST true <nil>
	// 02:30 CET false <nil>
}

// A loop in each process, for a cron expression. It begins with the latest time, unless that has a
// run.
func ExampleRunner_EveryAt() {
	ctx, stop := context.WithCancel(context.Background())
	runner, done := newRunner()
	defer done()
	berlin := must(time.LoadLocation("Europe/Berlin"))
	schedule := must(jobs.NewSchedule(berlin, nightly{12, 0})) // cron.ParseStandard("0 12 * * *")
	err := runner.EveryAt(ctx, "report", schedule, func(ctx context.Context, l *dblock.Lock, slot time.Time) error {
		fmt.Println("the report of", slot.Format("15:04"))
		stop() // here, so that the example ends
		return nil
	})
	fmt.Println(err)
	// Output:
	// the report of 12:00
	// <nil>
}

// In Berlin, the night of 29 March 2026 has no half past two, and that of 25 October has two.
func ExampleSchedule() {
	berlin := must(time.LoadLocation("Europe/Berlin"))
	schedule := must(jobs.NewSchedule(berlin, nightly{2, 30}))
	for _, noon := range []time.Time{
		time.Date(2026, 3, 27, 12, 0, 0, 0, berlin), time.Date(2026, 10, 23, 12, 0, 0, 0, berlin),
	} {
		due := noon
		for range 3 {
			due = schedule.Next(due)
			fmt.Println(due.Format("2 January 15:04 MST"))
		}
	}
	// Output:
	// 28 March 02:30 CET
	// 29 March 03:00 CEST
	// 30 March 02:30 CEST
	// 24 October 02:30 CEST
	// 25 October 02:30 CEST
	// 26 October 02:30 CET
}

// The state of all jobs.
func ExampleRunner_Jobs() {
	runner, done := newRunner(dblock.WithHost("web-1"))
	defer done()
	ctx := context.Background()
	_, err := runner.OncePer(ctx, "report", 24*time.Hour, func(context.Context, *dblock.Lock, time.Time) error {
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	_, _ = runner.OncePer(ctx, "clean up", time.Hour, func(context.Context, *dblock.Lock, time.Time) error {
		return errors.New("the disk is full")
	})
	for run, err := range runner.Jobs(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: on %s, ended: %v, error: %q\n", run.Name, run.Host, !run.Ended.IsZero(), run.Err)
	}
	// Output:
	// clean up: on web-1, ended: true, error: "the disk is full"
	// report: on web-1, ended: true, error: ""
}

// nightly is due once a day. In a program it is what cron.ParseStandard("30 2 * * *") returns, of
// github.com/robfig/cron/v3.
type nightly struct{ hour, minute int }

func (n nightly) Next(after time.Time) time.Time {
	due := time.Date(after.Year(), after.Month(), after.Day(), n.hour, n.minute, 0, 0, after.Location())
	if !due.After(after) {
		due = due.AddDate(0, 0, 1)
	}
	return due
}
