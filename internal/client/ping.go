package client

import (
	"context"
	"crypto/rand"
	"errors"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/session"
)

// noSession is the id of no session: ids are longer.
const noSession = "ping"

// Ping is why the client cannot lock now, or nil.
func (c *Client) Ping(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	if err := c.begin(); err != nil {
		return err
	}
	defer c.done()
	within, cancel := untilClosed(ctx, c.background)
	defer cancel()
	err := c.backing.ping(within)
	switch {
	case err != nil && c.closing():
		return ErrClosed
	case err != nil && ctx.Err() != nil:
		return c.unseen(ctx, err)
	}
	return err
}

// ping writes what a heartbeat does: that of the session, or where there is none one that finds no
// row.
func (t *tables) ping(ctx context.Context) error {
	if err := t.statement(ctx, t.schema); err != nil {
		return err
	}
	err := t.inquire(ctx, func(ctx context.Context) error {
		if s := t.sessions.alive(); s != nil {
			return s.Ping(ctx)
		}
		_, err := t.engine.Beat(ctx, noSession, t.config.TTL)
		return err
	})
	switch {
	case errors.Is(err, session.ErrKilled):
		return lost(err)
	case errors.Is(err, driver.ErrBusy), errors.Is(err, driver.ErrRetry):
		return driver.Fail(driver.ErrUnavailable, err)
	}
	return t.explain(ctx, err)
}

// ping takes a name that nobody else asks for, on the connection that keeps the locks.
func (n native) ping(ctx context.Context) error {
	return n.statement(ctx, func(ctx context.Context) error {
		p, got, err := n.keeper.Acquire(ctx, "dblock/ping/"+rand.Text(), false, false)
		if err != nil || !got {
			return err
		}
		return p.Release(ctx)
	})
}
