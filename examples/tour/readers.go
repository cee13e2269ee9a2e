package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
)

// readers share a name; a writer has it alone; a reader can become a writer, and a writer a reader.
func readers(ctx context.Context, a, b client) error {
	first, err := a.Lock(ctx, "price list", dblock.Shared())
	if err != nil {
		return err
	}
	second, err := b.Lock(ctx, "price list", dblock.Shared())
	if err != nil {
		return err
	}
	say("two processes read the price list, under tokens %d and %d", first.Token(), second.Token())
	if err := first.TryUpgrade(ctx); !errors.Is(err, dblock.ErrNotAcquired) {
		return fmt.Errorf("upgraded beside another reader: %w", err)
	}
	say("the first cannot become a writer while the second reads: it fails at once, and continues to read")
	if err := second.Unlock(ctx); err != nil {
		return err
	}
	if err := first.TryUpgrade(ctx); err != nil {
		return err
	}
	say("the second has left: now it can, under token %d, with none in between", first.Token())
	if err := first.Downgrade(ctx); err != nil {
		return err
	}
	again, err := b.TryLock(ctx, "price list", dblock.Shared())
	if err != nil {
		return err
	}
	say("it is a reader again, and the second can read what it wrote")
	return errors.Join(again.Unlock(ctx), first.Unlock(ctx))
}
