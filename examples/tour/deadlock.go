package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/dblock-go/dblock"
)

// deadlock lets two processes each wait for the other's lock. The owner travels in the context of
// the first lock, so the database knows which owner waits for which.
func deadlock(ctx context.Context, a, b client) error {
	left, err := a.Lock(ctx, "left")
	if err != nil {
		return err
	}
	right, err := b.Lock(ctx, "right")
	if err != nil {
		return err
	}
	say("one has left and wants right, the other has right and wants left; nothing would ever happen")
	var work errgroup.Group
	gaveUp := make(chan error, 2)
	want := func(c client, held lock, name string) func() error {
		return func() error {
			l, err := c.Lock(held.Context(), name)
			if errors.Is(err, dblock.ErrDeadlock) {
				gaveUp <- err
				return held.Unlock(ctx) // let the other continue
			}
			if err != nil {
				return err
			}
			return errors.Join(l.Unlock(ctx), held.Unlock(ctx))
		}
	}
	work.Go(want(a, left, "right"))
	work.Go(want(b, right, "left"))
	if err := work.Wait(); err != nil {
		return err
	}
	if len(gaveUp) != 1 {
		return fmt.Errorf("%d gave up", len(gaveUp))
	}
	say("after a second one of them gets ErrDeadlock, and the other continues:")
	say("%v", <-gaveUp)
	return nil
}
