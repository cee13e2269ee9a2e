package operate

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/client"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/session"
)

// noSession is the id of no session: ids are longer.
const noSession = "ping"

// Ping returns the reason why the client cannot lock now, or nil.
func Ping(ctx context.Context, c *client.Client) error {
	if ctx == nil {
		return contract.ErrNilContext
	}
	if err := c.Store().Begin(); err != nil {
		return err
	}
	defer c.Store().Done()
	within, cancel := contract.UntilClosed(ctx, c.Store().Background)
	defer cancel()
	err := ping(within, c)
	switch {
	case err != nil && c.Store().Closing():
		return contract.ErrClosed
	case err != nil && ctx.Err() != nil:
		return c.Store().Unanswered(ctx, err)
	}
	return err
}

// ping sends a heartbeat: that of the session, or without one a heartbeat that finds no row.
func ping(ctx context.Context, c *client.Client) error {
	if err := c.Store().CheckSchema(ctx); err != nil {
		return err
	}
	err := c.Store().Quickly(ctx, func(ctx context.Context) error {
		if s := c.Sessions().Alive(); s != nil {
			return s.Ping(ctx)
		}
		_, err := c.Store().Engine.Beat(ctx, noSession, c.TTL())
		return err
	})
	switch {
	case errors.Is(err, session.ErrKilled):
		return contract.Lost(err)
	case errors.Is(err, driver.ErrBusy), errors.Is(err, driver.ErrRetry):
		return driver.Fail(driver.ErrUnavailable, err)
	}
	return c.Store().Explain(ctx, err)
}
