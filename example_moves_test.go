package dblock_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/example"
)

// A person saw who has the lock, and confirms some time later. By then another may have it.
func ExampleClient_Break() {
	ctx := context.Background()
	client, done := openClient()
	defer done()
	stuck := must(client.Lock(ctx, "printer"))
	info := must(client.Inspect(ctx, "printer"))
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
	latest := func(now time.Time) time.Time { // of a job that is due at three, each day
		due := now.Truncate(24 * time.Hour).Add(3 * time.Hour)
		if due.After(now) {
			due = due.Add(-24 * time.Hour)
		}
		return due
	}
	start := func(now time.Time) { // what each server does once as it starts
		ran, err := client.OnceAt(ctx, "nightly", latest(now), func(ctx context.Context, l *dblock.Lock[*sql.Tx], slot time.Time) error {
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

// A scheduler of cron expressions tells for which time it runs a job. All servers name the slot
// alike, and one of them runs it.
func ExampleClient_OnceAt() {
	ctx := context.Background()
	client, done := openClient()
	defer done()
	report := func(ctx context.Context, l *dblock.Lock[*sql.Tx], slot time.Time) error {
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
