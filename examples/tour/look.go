package main

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/inspect"
)

type lock = *dblock.Lock

// look prints the holder, the waiters and the history of a name.
func look(ctx context.Context, a, b client) error {
	held, err := a.Lock(ctx, "the archive", dblock.Metadata(map[string]string{"job": "backup"}))
	if err != nil {
		return err
	}
	waiting := make(chan error, 1)
	go func() {
		l, err := b.Lock(ctx, "the archive")
		if err == nil {
			err = l.Unlock(ctx)
		}
		waiting <- err
	}()
	inspector := inspect.New(a)
	for info, err := range inspector.Watch(ctx, "the archive") { // until the other stands in the queue
		if err != nil {
			return err
		}
		if len(info.Waiters) > 0 {
			break
		}
	}
	for info, err := range inspector.List(ctx, inspect.Filter{Prefix: "the "}) {
		if err != nil {
			return err
		}
		holder := info.Holders[0]
		say("%s: held by %s (pid %d) for %v, token %d, %v; %d waiting", info.Name, holder.App, holder.PID,
			time.Since(holder.Since).Round(time.Millisecond), holder.Token, holder.Metadata, info.Queued)
	}
	if err := errors.Join(held.Unlock(ctx), <-waiting); err != nil {
		return err
	}
	return events(ctx, inspector)
}

// events waits until the history is complete, and prints it.
func events(ctx context.Context, i *inspect.Inspector) error {
	for {
		var lines []inspect.Event
		for e, err := range i.Events(ctx, inspect.EventFilter{Name: "the archive"}) {
			if err != nil {
				return err
			}
			lines = append(lines, e)
		}
		if len(lines) >= 4 { // two were granted, two released
			for _, e := range lines[len(lines)-4:] {
				say("%s  %-8s token %d", e.At.Format("15:04:05.000"), e.Kind, e.Token)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond): // it is written in the background
		}
	}
}
