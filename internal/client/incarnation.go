package client

import (
	"context"

	"github.com/dblock-go/dblock/internal/driver"
)

// Incarnation asks the database for how long it has had its data, as driver.Quorum says.
func (c *Client) Incarnation(ctx context.Context, renew bool, floor int64) (i driver.Incarnation, err error) {
	err = c.store.Inquire(ctx, func(ctx context.Context) (err error) {
		i, err = c.store.Engine.Incarnation(ctx, renew, floor)
		return err
	})
	return i, err
}
