package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/quorum"
)

const name = "invoice/42" // of the lock

// play is a run with the three databases.
type play struct {
	ttl    time.Duration
	sites  []*site
	client *quorum.Client
	out    io.Writer
}

func (p play) run(ctx context.Context) error {
	fmt.Fprintf(p.out, "Three databases are new. They count when their quarantine of %v has passed.\n", 2*p.ttl)
	lock, err := p.first(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx) // it will be lost
	fmt.Fprintf(p.out, "We hold %s, token %d, valid for %v if nothing more is heard from any of them.\n",
		name, lock.Token(), time.Until(lock.Until()).Round(100*time.Millisecond))

	p.sites[0].fail()
	fmt.Fprintln(p.out, "berlin is gone.")
	select {
	case <-time.After(2 * p.ttl):
		fmt.Fprintln(p.out, "Two TTLs later we still hold the lock: paris and rome are a majority.")
	case <-lock.Context().Done():
		return context.Cause(lock.Context())
	}

	p.sites[1].fail()
	fmt.Fprintln(p.out, "paris is gone too.")
	select {
	case <-lock.Context().Done():
		fmt.Fprintf(p.out, "The lock says so: %v\n", context.Cause(lock.Context()))
	case <-time.After(2 * p.ttl):
		return errors.New("the lock continues without a majority")
	}
	began := time.Now()
	_, err = p.client.Lock(ctx, name)
	if !errors.Is(err, dblock.ErrUnavailable) {
		return fmt.Errorf("a lock without a majority: %w", err)
	}
	fmt.Fprintf(p.out, "After %.1f s it is held again by none: %v\n", time.Since(began).Seconds(), err)

	p.sites[0].repair()
	fmt.Fprintln(p.out, "berlin is back.")
	return p.client.Do(ctx, name, func(_ context.Context, again *quorum.Lock) error {
		if again.Token() <= lock.Token() {
			return fmt.Errorf("token %d after %d", again.Token(), lock.Token())
		}
		fmt.Fprintf(p.out, "We hold %s again, token %d: higher than before.\n", name, again.Token())
		return nil
	})
}

// first waits for the end of the quarantine, which is longer than any later wait.
func (p play) first(ctx context.Context) (*quorum.Lock, error) {
	for {
		lock, err := p.client.Lock(ctx, name)
		if !errors.Is(err, quorum.ErrQuarantined) {
			return lock, err
		}
	}
}
