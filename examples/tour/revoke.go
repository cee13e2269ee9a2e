package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
)

// revoke asks a holder to release a name, and then revokes the name.
func revoke(ctx context.Context, a, b client) error {
	polite, err := a.Lock(ctx, "the printer")
	if err != nil {
		return err
	}
	asked := polite.Asked() // before Ask, so that it is pushed
	if err := b.Ask(ctx, "the printer", "one page only"); err != nil {
		return err
	}
	say("the holder is asked: %q; it lets go", <-asked)
	if err := polite.Unlock(ctx); err != nil {
		return err
	}
	stubborn, err := a.Lock(ctx, "the printer")
	if err != nil {
		return err
	}
	_ = stubborn.Asked()
	if _, err := b.Break(ctx, "the printer", "it prints the internet"); err != nil {
		return err
	}
	<-stubborn.Context().Done()
	if !errors.Is(context.Cause(stubborn.Context()), dblock.ErrLost) || !errors.Is(stubborn.Unlock(ctx),
		dblock.ErrLost) {
		return fmt.Errorf("the broken lock ended with %w", context.Cause(stubborn.Context()))
	}
	next, err := b.TryLock(ctx, "the printer")
	if err != nil {
		return err
	}
	say("the next one did not hear: the lock was broken, its context has ended; token %d gave way to %d",
		stubborn.Token(), next.Token())
	return next.Unlock(ctx)
}
