package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock"
)

// lockAll takes several names together, in any order of the arguments.
func lockAll(ctx context.Context, a, b client) error {
	all, err := a.LockAll(ctx, []string{"stock/bolts", "orders/7", "tax rates"},
		dblock.For("tax rates", dblock.Shared()))
	if err != nil {
		return err
	}
	say("the first process has %q, with one context; orders/7 under token %d", all.Names(), all.Token("orders/7"))
	_, err = b.TryLockAll(ctx, []string{"orders/8", "stock/bolts"})
	if !errors.Is(err, dblock.ErrNotAcquired) {
		return fmt.Errorf("both have stock/bolts: %w", err)
	}
	say("the second gets none of orders/8 and stock/bolts: %v", err)
	rates, err := b.TryLock(ctx, "tax rates", dblock.Shared())
	if err != nil {
		return err
	}
	say("but it can read the tax rates, which the first only reads too")
	return errors.Join(rates.Unlock(ctx), all.Unlock(ctx))
}
