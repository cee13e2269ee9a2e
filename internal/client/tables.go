package client

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/session"
)

// tables is a client whose locks are rows.
type tables struct {
	*Client
	engine   driver.Backend
	sessions *sessions
}

// table is the client's side that needs tables. ErrNoTables.
func (c *Client) table() (*tables, error) {
	if t, ok := c.backing.(*tables); ok {
		return t, nil
	}
	return nil, ErrNoTables
}

func (t *tables) allow(Want) error { return nil }

func (t *tables) schema(ctx context.Context) error { return t.sessions.checkSchema(ctx) }

// look reads the state of one name.
func (t *tables) look(ctx context.Context, s *clientSession, name string) (state driver.State, err error) {
	err = t.statement(ctx, func(ctx context.Context) error {
		states, err := t.engine.Look(ctx, s.ID, []string{name})
		if err == nil && len(states) > 0 {
			state = states[0]
		}
		return err
	})
	return state, err
}

// vacate takes something off a name, and delivers what that gave to the waiters of this client.
func (t *tables) vacate(ctx context.Context, s *clientSession, v driver.Vacancy) (next []driver.Handoff, left bool, err error) {
	asked := t.config.Clock()
	err = t.statement(ctx, func(ctx context.Context) (err error) {
		next, left, err = t.engine.Vacate(ctx, v)
		return err
	})
	s.deliver(v.Name, next, asked, err)
	return next, left && err == nil, err
}

// reclaim takes a name from a holder that is over its time, and reports whether a waiter has got
// nothing by it.
func (t *tables) reclaim(ctx context.Context, s *clientSession, name string, holder driver.Holder) (freed bool, err error) {
	next, taken, err := t.vacate(ctx, s, driver.TakeOver(s.ID, name, holder))
	if taken && holder.Grant.Token != 0 {
		t.history.recordExpired(name, holder)
	}
	return taken && len(next) == 0, err
}

// Inquire runs statements that no lock depends on, and again where a race was lost. ErrNoTables.
func (c *Client) Inquire(ctx context.Context, f func(ctx context.Context, engine driver.Backend) error) error {
	if ctx == nil {
		return errNilContext
	}
	t, err := c.table()
	if err != nil {
		return err
	}
	if err := c.begin(); err != nil {
		return err
	}
	defer c.done()
	return t.inquire(ctx, func(ctx context.Context) error { return f(ctx, t.engine) })
}

// inquire is Inquire within a call.
func (t *tables) inquire(ctx context.Context, f func(ctx context.Context) error) error {
	for tries := 1; ; tries++ {
		err := t.statement(ctx, f)
		if err == nil || !transient(err) || ctx.Err() != nil || tries >= 5 {
			return err
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// CheckSchema is why this build cannot work with the database's tables, or nil.
func (c *Client) CheckSchema(ctx context.Context) error {
	if ctx == nil {
		return errNilContext
	}
	return c.backing.schema(ctx)
}

// overOf is why a session holds nothing any more, or nil.
func overOf(s *clientSession) error {
	switch {
	case s.Context().Err() != nil:
		return context.Cause(s.Context())
	case !s.Alive():
		return session.ErrExpired
	}
	return nil
}
