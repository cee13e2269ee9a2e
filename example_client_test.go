package dblock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/observe"
	"github.com/dblock-go/dblock/reaper"
)

// What needs a lock and no transaction takes a Locker: it works with every engine.
func ExampleClient_Locker() {
	client, done := openClient()
	defer done()
	report := func(ctx context.Context, locker dblock.Locker) error {
		return locker.Do(ctx, "report", func(ctx context.Context, l dblock.Handle) error {
			fmt.Println("alone with", l.Name())
			return nil
		})
	}
	if err := report(context.Background(), client.Locker()); err != nil {
		log.Fatal(err)
	}
	// Output: alone with report
}

// The edit lock of a web page lasts from one request to another, perhaps in another process.
func ExampleClient_Resume() {
	client, done := openClient()
	defer done()
	ctx := context.Background()
	first, err := client.TryLock(ctx, "page/7")
	if err != nil {
		log.Fatal(err)
	}
	if err := first.Detach(ctx, 15*time.Minute); err != nil {
		log.Fatal(err)
	}
	lock, err := client.Resume(ctx, "page/7", first.Token())
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)
	fmt.Println("the same token:", lock.Token() == first.Token())
	// Output: the same token: true
}

func ExampleWithObserver() {
	client, done := openClient(dblock.WithObserver(observe.Observer{
		AcquireEnd: func(_ context.Context, a observe.Attempt, r observe.AcquireResult) {
			fmt.Println(a.Name, "acquired:", r.Err == nil)
		},
		HoldEnd: func(r observe.HoldResult) {
			fmt.Println(r.Name, "unlocked:", r.Err == nil)
		},
	}))
	defer done() // Close waits until the observer was told
	err := client.Do(context.Background(), "invoice/42", func(context.Context, *dblock.Lock) error {
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// invoice/42 acquired: true
	// invoice/42 unlocked: true
}

func ExampleClient_Stats() {
	client, done := openClient()
	defer done()
	ctx := context.Background()
	l, err := client.Lock(ctx, "invoice/42")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Unlock(ctx)
	s := client.Stats()
	fmt.Printf("%d held, %d waiting\n", s.Held, s.Waiting)
	// Output: 1 held, 0 waiting
}

// A readiness probe answers with what Ping says.
func ExampleClient_Ping() {
	client, done := openClient()
	defer done()
	if err := client.Ping(context.Background()); err != nil {
		fmt.Println("not ready:", err)
		return
	}
	fmt.Println("ready")
	// Output: ready
}

// Where thousands of processes share a database, a longer TTL makes them cheaper: this client sends
// a quarter of the heartbeats, and sweeps a quarter as often, as with the defaults. The successor
// of a holder that crashes then waits for up to a minute.
func ExampleWithTTL() {
	client, done := openClient(dblock.WithTTL(time.Minute), dblock.WithReaper(reaper.Interval(time.Minute)))
	defer done()
	ctx := context.Background()
	lock := must(client.Lock(ctx, "invoice/42"))
	defer lock.Unlock(ctx)
	for session, err := range inspect.New(client).Sessions(ctx, inspect.SessionFilter{}) {
		fmt.Println("without a heartbeat it ends in", time.Until(session.Until).Round(10*time.Second), err)
	}
	// Output: without a heartbeat it ends in 1m0s <nil>
}

func ExampleName() {
	fmt.Println(dblock.Name("tenant", "42", "invoices"))
	fmt.Println(dblock.Name("file", "/etc/hosts"))
	// Output:
	// tenant/42/invoices
	// file/%2Fetc%2Fhosts
}
