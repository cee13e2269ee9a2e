package observe_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/internal/testing/example"
	"github.com/dblock-go/dblock/observe"
)

// One Observer counts what came of requests, another one tells of locks that were held for long.
func ExampleAll() {
	requests := map[string]int{} // callbacks come from one goroutine
	counting := observe.Observer{
		AcquireEnd: func(_ context.Context, _ observe.Attempt, r observe.AcquireResult) {
			requests[observe.Outcome(r.Err)]++
		},
	}
	telling := observe.Observer{
		HoldEnd: func(r observe.HoldResult) {
			if r.Held > 10*time.Millisecond {
				fmt.Println(r.Name, "was held for long:", observe.Outcome(r.Err))
			}
		},
	}
	t := &example.T{}
	client := dblocktest.New[*sql.Tx](t, dblock.WithObserver(observe.All(counting, telling))).Client

	ctx := context.Background()
	lock, err := client.Lock(ctx, "invoice/42")
	if err != nil {
		log.Fatal(err)
	}
	_, err = client.TryLock(ctx, "invoice/42")
	fmt.Println("the second:", observe.Outcome(err))
	time.Sleep(20 * time.Millisecond)
	if err := lock.Unlock(ctx); err != nil {
		log.Fatal(err)
	}
	t.End() // Close waits until the observers were told
	fmt.Println(requests)
	// Output:
	// the second: refused
	// invoice/42 was held for long: ok
	// map[ok:1 refused:1]
}

func ExampleOutcome() {
	fmt.Println(observe.Outcome(nil))
	fmt.Println(observe.Outcome(fmt.Errorf("charging invoice 42: %w", dblock.ErrLost)))
	fmt.Println(observe.Outcome(&dblock.NotAcquiredError{Host: "web-1", Cause: context.DeadlineExceeded}))
	// Output:
	// ok
	// lost
	// timeout
}
