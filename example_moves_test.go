package dblock_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/example"
)

// A person saw who has the lock, and confirms some time later. By then another may have it.
func ExampleClient_Break() {
	ctx := context.Background()
	client, done := openClient()
	defer done()
	stuck := must(client.Lock(ctx, "printer"))
	info := must(inspect.New(client).Lock(ctx, "printer"))
	seen := info.Holders[0].Token

	n, err := client.Break(ctx, "printer", "confirmed by hand", seen)
	fmt.Println("taken from", n, err)
	<-stuck.Context().Done()

	next := must(client.Lock(ctx, "printer"))
	defer next.Unlock(ctx)
	n, err = client.Break(ctx, "printer", "confirmed twice", seen)
	fmt.Println("taken from", n, err)
	fmt.Println("the next one has it still:", next.Context().Err() == nil)
	// Output:
	// taken from 1 <nil>
	// taken from 0 <nil>
	// the next one has it still: true
}

// At most two calls of an API begin in each second, over all processes: a permit that nobody
// unlocks comes back after its second.
func ExampleLease() {
	ctx := context.Background()
	process := dblocktest.New[*sql.Tx](&example.T{}) // its time is moved by hand
	client := process.Client
	call := func() error {
		_, err := client.Lock(ctx, "api.example.com", dblock.Permits(1, 2), dblock.Lease(time.Second))
		return err // nil: call it now, and do not unlock
	}
	fmt.Println(call(), call())
	third := make(chan error)
	go func() { third <- call() }()
	process.AwaitQueue(&example.T{}, "api.example.com", 1)
	fmt.Println("the third waits")
	process.Advance(time.Second)
	fmt.Println(<-third)
	// Output:
	// <nil> <nil>
	// the third waits
	// <nil>
}

func ExampleLock_Extend() {
	ctx := context.Background()
	client, done := openClient()
	defer done()
	lock := must(client.Lock(ctx, "import", dblock.Lease(time.Minute)))
	defer lock.Unlock(ctx)
	for file := range 3 { // each takes less than a minute, all of them may take more
		if err := lock.Extend(ctx, time.Minute); err != nil {
			fmt.Println(err) // ErrLost: another may have it
			return
		}
		fmt.Println("imported", file)
	}
	// Output:
	// imported 0
	// imported 1
	// imported 2
}

// No server was there at three in the morning. The first that starts catches up.
func ExampleClient_OnceAt_catchUp() {
	ctx := context.Background()
	client, done := openClient()
	defer done()
	schedule := must(dblock.NewSchedule(time.UTC, nightly{3, 0}))
	start := func(now time.Time) { // what each server does once as it starts
		ran, err := client.OnceAt(ctx, "nightly", schedule.Latest(now), func(ctx context.Context, l *dblock.Lock, slot time.Time) error {
			fmt.Println("the run of", slot.Format("2 January, 15:04"))
			return nil
		})
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

// In Berlin, the night of 29 March 2026 has no half past two, and that of 25 October has two.
func ExampleSchedule() {
	berlin := must(time.LoadLocation("Europe/Berlin"))
	schedule := must(dblock.NewSchedule(berlin, nightly{2, 30}))
	for _, noon := range []time.Time{time.Date(2026, 3, 27, 12, 0, 0, 0, berlin), time.Date(2026, 10, 23, 12, 0, 0, 0, berlin)} {
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

// A loop in each process, for a cron expression. It begins with the latest time, unless that has a
// run.
func ExampleClient_EveryAt() {
	ctx, stop := context.WithCancel(context.Background())
	client, done := openClient()
	defer done()
	berlin := must(time.LoadLocation("Europe/Berlin"))
	schedule := must(dblock.NewSchedule(berlin, nightly{12, 0})) // cron.ParseStandard("0 12 * * *")
	err := client.EveryAt(ctx, "report", schedule, func(ctx context.Context, l *dblock.Lock, slot time.Time) error {
		fmt.Println("the report of", slot.Format("15:04"))
		stop() // here, so that the example ends
		return nil
	})
	fmt.Println(err)
	// Output:
	// the report of 12:00
	// <nil>
}

// Servers in whatever time zone name the same moment. In the night that has half past two twice, it
// is the first.
func ExampleClient_OnceAt_timeZone() {
	ctx := context.Background()
	client, done := openClient()
	defer done()
	berlin := must(time.LoadLocation("Europe/Berlin"))
	schedule := must(dblock.NewSchedule(berlin, nightly{2, 30}))
	first := time.Date(2025, 10, 26, 0, 30, 0, 0, time.UTC)
	for _, now := range []time.Time{first, first.Add(time.Hour)} { // both show 2:30 in Berlin
		ran, err := client.OnceAt(ctx, "nightly", schedule.Latest(now), func(ctx context.Context, l *dblock.Lock, slot time.Time) error {
			fmt.Println("the run of", slot.Format("2 January 15:04 MST"))
			return nil
		})
		fmt.Println(now.In(berlin).Format("15:04 MST"), ran, err)
	}
	// Output:
	// the run of 26 October 02:30 CEST
	// 02:30 CEST true <nil>
	// 02:30 CET false <nil>
}

// A scheduler of cron expressions tells for which time it runs a job. All servers name the slot
// alike, and one of them runs it.
func ExampleClient_OnceAt() {
	ctx := context.Background()
	client, done := openClient()
	defer done()
	report := func(ctx context.Context, l *dblock.Lock, slot time.Time) error {
		fmt.Println("the report of", slot.Format("15:04"))
		return nil
	}
	noon := time.Date(2025, 1, 31, 12, 0, 0, 0, time.UTC)
	for range 3 { // servers
		ran, err := client.OnceAt(ctx, "report", noon, report)
		fmt.Println(ran, err)
	}
	ran, err := client.OnceAt(ctx, "report", noon.Add(-time.Hour), report) // a server that is late
	fmt.Println(ran, err)
	// Output:
	// the report of 12:00
	// true <nil>
	// false <nil>
	// false <nil>
	// false <nil>
}
