package client

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/driver"
	"github.com/dblock-go/dblock/internal/coalesce"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/session"
)

// tables is a client whose locks are rows.
type tables struct {
	*Client
	engine   driver.Backend
	sessions *sessions
	settling *outage.Report
	undos    *coalesce.Coalescer[undo, error]
}

// table is the client's side that needs tables. ErrNoTables.
func (c *Client) table() (*tables, error) {
	if t, ok := c.backing.(*tables); ok {
		return t, nil
	}
	return nil, ErrNoTables
}

// undo is an attempt of a session's that is to be given back.
type undo struct {
	of    *clientSession
	claim *claim
}

func (t *tables) allow(*Want) error { return nil }

func (t *tables) schema(ctx context.Context) error { return t.sessions.checkSchema(ctx) }

// lookAt reads the state of names as a session sees it.
func (t *tables) lookAt(ctx context.Context, session string, names []string) (states []driver.State, err error) {
	err = t.statement(ctx, func(ctx context.Context) (err error) {
		states, err = t.engine.Look(ctx, session, names)
		return err
	})
	return states, err
}

// look reads the state of one name as a session sees it; of no session: without the places of this
// client, which may be thousands.
func (t *tables) look(ctx context.Context, session, name string) (driver.State, error) {
	states, err := t.lookAt(ctx, session, []string{name})
	if err != nil || len(states) == 0 {
		return driver.State{}, err
	}
	return states[0], nil
}

// vacate takes something off a name, and delivers what that gave to the waiters of this client.
func (t *tables) vacate(ctx context.Context, s *clientSession, v driver.Vacancy) (next []driver.Handoff, left bool, err error) {
	asked := t.config.Clock.Now()
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
	away := t.absent()
	for tries := 1; ; tries++ {
		err := t.statement(ctx, f)
		if err == nil || !t.transient(err) || away.tooLong(t, err) || ctx.Err() != nil || tries >= 5 {
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

// begun reports whether the client has ever had a session.
func (t *tables) begun() bool { return t.sessions.last() != nil }

func (t *tables) outage(err error) bool    { return isOutage(err, t.begun()) }
func (t *tables) transient(err error) bool { return transient(err, t.begun()) }

// absence is since when the database gives one call no answer. The zero value: since the first try
// that failed so; otherwise since the moment given. Every answer begins it anew.
type absence struct{ since time.Duration }

// tooLong notes what came of a try, and reports whether the call shall not try again: after a TTL
// without an answer, or where the pool gave no connection for as long.
func (a *absence) tooLong(t *tables, err error) bool {
	if !t.outage(err) {
		a.since = 0
		return false
	}
	now := t.config.Clock.Now()
	if a.since == 0 {
		a.since = now
	}
	return errors.Is(err, errExhausted) || now-a.since >= t.config.TTL
}

// absent is an absence that counts from now.
func (t *tables) absent() absence { return absence{t.config.Clock.Now()} }
