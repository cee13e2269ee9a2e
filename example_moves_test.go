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
