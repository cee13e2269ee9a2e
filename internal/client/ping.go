package client

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/session"
)

// noSession is the id of no session: ids are longer.
const noSession = "ping"

// Ping is why the client cannot lock now, or nil.
func (c *Client) Ping(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if err := c.store.Begin(); err != nil {
		return err
	}
	defer c.store.Done()
	within, cancel := contract.UntilClosed(ctx, c.store.Background)
	defer cancel()
	err := c.ping(within)
	switch {
	case err != nil && c.store.Closing():
		return ErrClosed
	case err != nil && ctx.Err() != nil:
		return c.store.Unanswered(ctx, err)
	}
	return err
}

// ping writes what a heartbeat does: that of the session, or where there is none one that finds no
// row.
func (c *Client) ping(ctx context.Context) error {
	if err := c.store.CheckSchema(ctx); err != nil {
		return err
	}
	err := c.store.Quickly(ctx, func(ctx context.Context) error {
		if s := c.sessions.Alive(); s != nil {
			return s.Ping(ctx)
		}
		_, err := c.store.Engine.Beat(ctx, noSession, c.config.TTL)
		return err
	})
	switch {
	case errors.Is(err, session.ErrKilled):
		return lost(err)
	case errors.Is(err, driver.ErrBusy), errors.Is(err, driver.ErrRetry):
		return driver.Fail(driver.ErrUnavailable, err)
	}
	return c.store.Explain(ctx, err)
}
