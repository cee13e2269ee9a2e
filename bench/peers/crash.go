package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

const (
	commonTTL  = 5 * time.Second // for all systems that have a TTL
	holders    = 5
	crashAfter = 1500 * time.Millisecond // from the last Lock, so that waiters wait
)

// crash kills holders, a process each, one after the other within a third of the TTL, and returns
// the times until a waiter in this process had the lock. ttl 0 is the system's own.
func crash(ctx context.Context, s subject, ttl time.Duration) ([]time.Duration, error) {
	l, err := s.openFor(ctx, s.at, ttl)
	if err != nil {
		return nil, err
	}
	defer l.close()
	killed, granted := make([]time.Duration, holders), make([]time.Duration, holders)
	children := make([]*child, holders)
	// The names differ from those of other peers on the server, which crash at the same time.
	name := func(i int) string { return fmt.Sprintf("crash/%s/%v/%d", s.name, ttl, i) }
	for i := range children {
		if children[i], err = s.child(ctx, "hold", name(i), ttl); err != nil {
			return nil, err
		}
		defer children[i].end()
	}
	waiting := make(chan error, 1)
	go func() {
		waiting <- each(ctx, holders, func(ctx context.Context, i int) error {
			unlock, err := l.lock(ctx, name(i))
			if err != nil {
				return err
			}
			granted[i] = session.Boottime()
			return unlock(ctx)
		})
	}()
	pause(ctx, crashAfter)
	for i, c := range children {
		killed[i] = session.Boottime()
		if err := c.kill(); err != nil {
			return nil, err
		}
		pause(ctx, cmp.Or(ttl, s.ttl)/3/(holders+1)) // no multiple of a pause between two looks
	}
	if err := <-waiting; err != nil {
		return nil, err
	}
	times := make([]time.Duration, holders)
	for i := range times {
		if times[i] = granted[i] - killed[i]; times[i] < 0 {
			return nil, errTwoHolders
		}
	}
	return times, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
