package client

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// lookAt reads the state of names as a session sees it.
func (c *Client) lookAt(ctx context.Context, session string, names []string) (states []driver.State, err error) {
	err = c.statement(ctx, func(ctx context.Context) (err error) {
		states, err = c.engine.Look(ctx, session, names)
		return err
	})
	return states, err
}

// look reads the state of one name as a session sees it; of no session: without the places of this
// client, which may be thousands.
func (c *Client) look(ctx context.Context, session, name string) (driver.State, error) {
	states, err := c.lookAt(ctx, session, []string{name})
	if err != nil || len(states) == 0 {
		return driver.State{}, err
	}
	return states[0], nil
}

// remove takes something off a name, and delivers what that gave to the waiters of this client.
func (c *Client) remove(ctx context.Context, s *clientSession, r driver.Removal) (next []driver.Handoff, left bool, err error) {
	asked := c.config.Clock.Now()
	err = c.statement(ctx, func(ctx context.Context) (err error) {
		next, left, err = c.engine.Remove(ctx, r)
		return err
	})
	s.deliver(r.Name, next, asked, err)
	return next, left && err == nil, err
}

// change runs a transition of a name for a session, and delivers what it gave to the waiters of
// this client.
func (c *Client) change(ctx context.Context, s *clientSession, name string, transition func(n *protocol.Name) error) error {
	asked := c.config.Clock.Now()
	var next []driver.Handoff
	err := c.statement(ctx, func(ctx context.Context) (err error) {
		next, err = c.engine.Change(ctx, driver.How{Name: name, Self: s.ID, Wait: true}, transition)
		return err
	})
	s.deliver(name, next, asked, err)
	return err
}

// reclaim takes a name from a holder that is over its time, and reports whether a waiter has got
// nothing by it.
func (c *Client) reclaim(ctx context.Context, s *clientSession, name string, holder driver.Holder) (freed bool, err error) {
	next, taken, err := c.remove(ctx, s, protocol.TakeOver(s.ID, name, holder))
	if taken && holder.Grant.Token != 0 {
		c.history.recordExpired(name, holder)
	}
	return taken && len(next) == 0, err
}

// Inquire runs statements that no lock depends on, and again where a race was lost.
func (c *Client) Inquire(ctx context.Context, f func(ctx context.Context, engine driver.Backend) error) error {
	if ctx == nil {
		return errNilContext
	}
	if err := c.begin(); err != nil {
		return err
	}
	defer c.done()
	within, cancel := contract.UntilClosed(ctx, c.answering)
	defer cancel()
	err := c.explain(within, c.inquire(within, func(ctx context.Context) error { return f(ctx, c.engine) }))
	if err != nil && ctx.Err() == nil && within.Err() != nil {
		return ErrClosed
	}
	return err
}

// explain says what is wrong with the tables, where that can be found out.
func (c *Client) explain(ctx context.Context, err error) error {
	if errors.Is(err, driver.ErrSchema) {
		if which := c.statement(ctx, c.sessions.checkSchema); which != nil {
			return which
		}
	}
	return err
}

// inquire is Inquire within a call. It begins no try after a TTL.
func (c *Client) inquire(ctx context.Context, f func(ctx context.Context) error) error {
	began := c.config.Clock.Now()
	for tries := 1; ; tries++ {
		err := c.pastBroken(ctx, func() error { return c.statement(ctx, f) })
		late := c.config.Clock.Now()-began >= c.config.TTL || errors.Is(err, errExhausted)
		if err == nil || !c.transient(err) || late || ctx.Err() != nil || tries >= 5 {
			return err
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// insist is inquire that tries for as long as Lock does: a TTL, with growing pauses, whatever the
// reason to try again. Close ends it.
func (c *Client) insist(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := contract.UntilClosed(ctx, c.answering)
	defer cancel()
	began := c.config.Clock.Now()
	for tries := 1; ; tries++ {
		err := c.statement(ctx, f)
		switch {
		case err == nil:
			return nil
		case c.closing():
			return ErrClosed
		case !c.transient(err), ctx.Err() != nil, errors.Is(err, errExhausted), c.config.Clock.Now()-began >= c.config.TTL:
			return err
		}
		backOff(ctx, tries)
	}
}

// CheckSchema is why this build cannot work with the database's tables, or nil.
func (c *Client) CheckSchema(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	return c.statement(ctx, c.sessions.checkSchema)
}

// begun reports whether the client has ever had a session.
func (c *Client) begun() bool { return c.sessions.last() != nil }

func (c *Client) outage(err error) bool    { return isOutage(err, c.begun()) }
func (c *Client) transient(err error) bool { return transient(err, c.begun()) }

// absence is since when the database gives one call no answer. The zero value: since the first try
// that failed so; otherwise since the moment given. Every answer begins it anew.
type absence struct{ since time.Duration }

// tooLong notes what came of a try, and reports whether the call shall not try again: after a TTL
// without an answer, or where the pool gave no connection for as long.
func (a *absence) tooLong(c *Client, err error) bool {
	if !c.outage(err) {
		a.since = 0
		return false
	}
	now := c.config.Clock.Now()
	if a.since == 0 {
		a.since = now
	}
	return errors.Is(err, errExhausted) || now-a.since >= c.config.TTL
}

// absent is an absence that counts from now.
func (c *Client) absent() absence { return absence{c.config.Clock.Now()} }
