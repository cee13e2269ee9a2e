package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dblock-go/dblock"
)

const (
	name     = "report/daily"
	readers  = 3
	writes   = 25 // of each client
	lossWait = 5 * time.Second
)

// client is a client as the steps use it: a *postgres.AdvisoryClient, or tables.
type client[TX any] interface {
	dblock.Locker
	txLocker[TX]
}

type txLocker[TX any] interface {
	LockTx(ctx context.Context, tx TX, names ...string) error
	Close(ctx context.Context) error
}

// tables is a client of tables: the methods of its *dblock.Client without and with TX.
type tables[TX any] struct {
	dblock.Locker
	txLocker[TX]
}

// steps are the steps of the example. A nil step does not exist on the engine.
type steps[TX any] struct {
	clients     [2]client[TX]
	transaction func(ctx context.Context, f func(tx TX) error) error
	count       func(ctx context.Context, tx TX) (int, error) // reads a number, and writes the next
	seen        func(ctx context.Context) error               // prints the lock as the server shows it
	cut         func(ctx context.Context) error               // ends the connection that has the lock
}

// turns lets one client take a lock, and the other wait for it.
func (s steps[TX]) turns(ctx context.Context) error {
	fmt.Printf("\nOne after the other: %q\n", name)
	lock, err := s.clients[0].Lock(ctx, name)
	if err != nil {
		return err
	}
	fmt.Println("  client 1 has it")
	if s.seen != nil {
		if err := s.seen(ctx); err != nil {
			return err
		}
	}
	_, err = s.clients[1].TryLock(ctx, name)
	if !errors.Is(err, dblock.ErrNotAcquired) {
		return fmt.Errorf("client 2 has it too: %w", err)
	}
	fmt.Println("  client 2 tries, and does not get it")
	waited := make(chan error, 1)
	go func() {
		waited <- s.clients[1].Do(ctx, name, func(context.Context, dblock.Handle) error {
			fmt.Println("  client 2 waited, and has it")
			return nil
		})
	}()
	fmt.Println("  client 1 gives it back")
	if err := lock.Unlock(ctx); err != nil {
		return err
	}
	return <-waited
}

// readers lets several readers hold the lock together, and one writer wait for it.
func (s steps[TX]) readers(ctx context.Context) error {
	fmt.Printf("\nReaders together, the writer alone: %q\n", name)
	var inside atomic.Int32
	together, work := make(chan struct{}), new(errgroup.Group)
	for i := range readers {
		work.Go(func() error {
			return s.clients[i%2].Do(ctx, name, func(ctx context.Context, _ dblock.Handle) error {
				if inside.Add(1) == readers {
					close(together)
				}
				defer inside.Add(-1)
				select { // each reader holds it until all do
				case <-together:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}, dblock.Shared())
		})
	}
	select {
	case <-together:
		fmt.Printf("  %d readers have it at once\n", readers)
	case <-ctx.Done():
	}
	work.Go(func() error {
		return s.clients[1].Do(ctx, name, func(context.Context, dblock.Handle) error {
			fmt.Printf("  the writer has it, with %d readers\n", inside.Load())
			return nil
		})
	})
	return work.Wait()
}

// transactions lets both clients count in transactions that end with their locks.
func (s steps[TX]) transactions(ctx context.Context) error {
	fmt.Printf("\nUntil the transaction ends: %q\n", name)
	var work errgroup.Group
	var last atomic.Int64
	for _, client := range s.clients {
		work.Go(func() error {
			for range writes {
				err := s.transaction(ctx, func(tx TX) error {
					if err := client.LockTx(ctx, tx, name); err != nil {
						return err
					}
					n, err := s.count(ctx, tx)
					last.Store(int64(n))
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	fmt.Printf("  two clients counted to %d in %d transactions\n", last.Load(), 2*writes)
	if last.Load() != 2*writes {
		return errors.New("a write was lost although the lock was used")
	}
	return nil
}

// loss ends the connection that has a client's locks.
func (s steps[TX]) loss(ctx context.Context) error {
	if s.cut == nil {
		return nil
	}
	fmt.Printf("\nThe end of the connection is the end of the lock: %q\n", name)
	lock, err := s.clients[0].Lock(ctx, name)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := s.cut(ctx); err != nil {
		return err
	}
	select {
	case <-lock.Context().Done():
	case <-time.After(lossWait):
		return errors.New("nothing was heard of it")
	}
	fmt.Printf("  heard of it after %v: %v\n", time.Since(start).Round(time.Millisecond), context.Cause(lock.Context()))
	if err := lock.Unlock(ctx); !errors.Is(err, dblock.ErrLost) {
		return fmt.Errorf("unlock: %w", err)
	}
	again, err := s.clients[0].Lock(ctx, name)
	if err != nil {
		return err
	}
	fmt.Println("  locked again, on a new connection")
	return again.Unlock(ctx)
}
