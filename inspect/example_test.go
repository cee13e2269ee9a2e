package inspect_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/dblocktest"
	"github.com/dblock-go/dblock/inspect"
	"github.com/dblock-go/dblock/internal/testing/example"
)

// withShops runs an example with two clients, as two processes would have them.
func withShops(show func(ctx context.Context, one, two *dblock.Client[*sql.Tx]) error) {
	t := &example.T{}
	defer t.End()
	one := dblocktest.New[*sql.Tx](t, dblock.WithHost("host-1"), dblock.WithApp("shop"))
	two := one.Another(t, dblock.WithHost("host-2"), dblock.WithApp("shop"))
	if err := show(context.Background(), one.Client, two.Client); err != nil {
		log.Fatal(err)
	}
}

// An exporter or a web page takes an Inspector, which works with every engine.
func ExampleNew() {
	withShops(func(ctx context.Context, one, two *dblock.Client[*sql.Tx]) error {
		show := func(i *inspect.Inspector) error {
			for info, err := range i.List(ctx, inspect.Filter{}) {
				if err != nil {
					return err
				}
				fmt.Println(info.Name, "is held by", info.Holders[0].Host)
			}
			return nil
		}
		l, err := one.Lock(ctx, "invoice/42")
		if err != nil {
			return err
		}
		return errors.Join(show(inspect.New(two)), l.Unlock(ctx))
	})
	// Output: invoice/42 is held by host-1
}

// The queue of a lock, as an operator sees it.
func ExampleInspector_Lock() {
	withShops(func(ctx context.Context, one, two *dblock.Client[*sql.Tx]) error {
		held, err := one.Lock(ctx, "invoice/42", dblock.Metadata(map[string]string{"job": "export"}))
		if err != nil {
			return err
		}
		waiting := make(chan error, 1)
		go func() {
			waiting <- two.Do(ctx, "invoice/42", func(context.Context, *dblock.Lock) error { return nil })
		}()
		for { // until the other stands in the queue
			info, err := inspect.New(one).Lock(ctx, "invoice/42")
			if err != nil {
				return err
			}
			if info.Queued > 0 {
				holder, waiter := info.Holders[0], info.Waiters[0]
				fmt.Println("held by", holder.Host, holder.Metadata, "alive:", holder.Alive)
				fmt.Println("waiting:", waiter.Host)
				break
			}
			time.Sleep(time.Millisecond)
		}
		return errors.Join(held.Unlock(ctx), <-waiting)
	})
	// Output:
	// held by host-1 map[job:export] alive: true
	// waiting: host-2
}

// A page of names, and the page after it.
func ExampleInspector_List() {
	withShops(func(ctx context.Context, one, two *dblock.Client[*sql.Tx]) error {
		all, err := one.LockAll(ctx, []string{"invoice/1", "invoice/2", "invoice/3", "report"})
		if err != nil {
			return err
		}
		page := func(after string) (last string, err error) {
			shown := 0
			for info, err := range inspect.New(two).List(ctx, inspect.Filter{Prefix: "invoice/", After: after}) {
				if err != nil {
					return "", err
				}
				fmt.Println(info.Name, "has", info.Holders[0].Host, "and", info.Queued, "wait")
				if last, shown = info.Name, shown+1; shown == 2 {
					break
				}
			}
			return last, nil
		}
		last, err := page("")
		if err != nil {
			return err
		}
		fmt.Println("after", last)
		if _, err := page(last); err != nil {
			return err
		}
		return all.Unlock(ctx)
	})
	// Output:
	// invoice/1 has host-1 and 0 wait
	// invoice/2 has host-1 and 0 wait
	// after invoice/2
	// invoice/3 has host-1 and 0 wait
}

// Who uses the database, and how much of it.
func ExampleInspector_Sessions() {
	withShops(func(ctx context.Context, one, two *dblock.Client[*sql.Tx]) error {
		all, err := one.LockAll(ctx, []string{"a", "b"})
		if err != nil {
			return err
		}
		for s, err := range inspect.New(two).Sessions(ctx, inspect.SessionFilter{}) {
			if err != nil {
				return err
			}
			fmt.Println(s.App, "on", s.Host, "has", s.Held, "and waits for", s.Waiting)
		}
		return all.Unlock(ctx)
	})
	// Output:
	// shop on host-1 has 2 and waits for 0
}

// The latest events of a name, the newest first.
func ExampleInspector_Events() {
	withShops(func(ctx context.Context, one, two *dblock.Client[*sql.Tx]) error {
		began := time.Now()
		err := one.Do(ctx, "backup", func(ctx context.Context, l *dblock.Lock) error {
			for _, table := range []string{"users", "orders", "items"} {
				if err := l.Record(ctx, "copied", table); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		shown := 0
		latest := inspect.EventFilter{Name: "backup", Since: began.Add(-time.Minute), Newest: true}
		for e, err := range inspect.New(two).Events(ctx, latest) {
			if err != nil {
				return err
			}
			fmt.Println(e.Host, e.Kind, e.Detail)
			if shown++; shown == 2 {
				break
			}
		}
		return nil
	})
	// Output:
	// host-1 copied items
	// host-1 copied orders
}
