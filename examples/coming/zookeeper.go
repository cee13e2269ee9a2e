package coming

import (
	"context"

	"github.com/dblock-go/dblock"
)

// Consume works on the items of a partition until it is asked to give way, or loses its lock.
func Consume(
	ctx context.Context, client *Client, partition string, items <-chan string,
	work func(ctx context.Context, item string) error,
) error {
	return client.Do(ctx, dblock.Name("partition", partition), func(ctx context.Context, lock *Lock) error {
		for {
			select {
			case <-ctx.Done(): // in place of SUSPENDED and LOST
				return context.Cause(ctx)
			case <-lock.Asked(): // in place of a RevocationListener
				return nil
			case item := <-items:
				if err := work(ctx, item); err != nil {
					return err
				}
			}
		}
	})
}
