package coming

import (
	"context"

	"github.com/dblock-go/dblock"
)

// Restock counts an item and orders more of it, under one lock.
func Restock(ctx context.Context, client *Client, item string, count, order func(ctx context.Context) error) error {
	return client.Do(ctx, dblock.Name("stock", item), func(ctx context.Context, _ *Lock) error {
		if err := Count(ctx, client, item, count); err != nil { // ctx is the lock's: Count enters it again
			return err
		}
		return order(ctx)
	})
}

// Count counts an item under its lock.
func Count(ctx context.Context, client *Client, item string, count func(ctx context.Context) error) error {
	return client.Do(ctx, dblock.Name("stock", item), func(ctx context.Context, _ *Lock) error {
		return count(ctx)
	})
}
