package dblock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/dblock-go/dblock"
)

// One Observer counts what came of requests, another one tells of locks that were held for long.
func ExampleObservers() {
	requests := map[string]int{} // callbacks come from one goroutine
	counting := dblock.Observer{
		AcquireEnd: func(_ context.Context, _ dblock.Attempt, r dblock.AcquireResult) { requests[dblock.Outcome(r.Err)]++ },
	}
	telling := dblock.Observer{
		HoldEnd: func(r dblock.HoldResult) {
			if r.Held > 10*time.Millisecond {
				fmt.Println(r.Name, "was held for long:", dblock.Outcome(r.Err))
			}
		},
	}
	client, done := openClient(dblock.WithObserver(dblock.Observers(counting, telling)))

	ctx := context.Background()
	lock := must(client.Lock(ctx, "invoice/42"))
	_, err := client.TryLock(ctx, "invoice/42")
	fmt.Println("the second:", dblock.Outcome(err))
	time.Sleep(20 * time.Millisecond)
	if err := lock.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	done() // Close waits until the observers were told
	fmt.Println(requests)
	// Output:
	// the second: refused
	// invoice/42 was held for long: ok
	// map[ok:1 refused:1]
}

func ExampleOutcome() {
	fmt.Println(dblock.Outcome(nil))
	fmt.Println(dblock.Outcome(fmt.Errorf("charging invoice 42: %w", dblock.ErrLost)))
	fmt.Println(dblock.Outcome(&dblock.NotAcquiredError{Host: "web-1", Cause: context.DeadlineExceeded}))
	// Output:
	// ok
	// lost
	// timeout
}
