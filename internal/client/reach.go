package client

import (
	"context"
	"log/slog"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/observe"
)

// Inner is the part of a *dblock.Client that does not depend on the type of transactions. Through
// it the other packages of this module reach the client's internal methods.
type Inner struct{ core *Client }

// InnerOf returns the Inner of a client.
func InnerOf(core *Client) Inner { return Inner{core} }

// Core returns the client without its transactions; nil of a zero value.
func (i Inner) Core() *Client { return i.core }

// Store returns the client's database.
func (c *Client) Store() *store.Store { return c.store }

// Sessions returns the client's sessions.
func (c *Client) Sessions() *store.Sessions { return c.sessions }

// History returns the client's history.
func (c *Client) History() *history.History { return c.history }

// Host returns the host that the client's locks show.
func (c *Client) Host() string { return c.config.Host }

// Log returns the client's logger. Its calls are queued.
func (c *Client) Log() *slog.Logger { return c.config.Log }

// Clock returns the client's clock.
func (c *Client) Clock() clock.Clock { return c.config.Clock }

// Observer returns the client's observer; the zero Observer if it has none. Its calls are queued.
func (c *Client) Observer() observe.Observer {
	if c.observer == nil {
		return observe.Observer{}
	}
	return *c.observer
}

// Connect opens the client's first session, unless it had one. Connect retries for a TTL, whereas
// Acquire fails at once while the database is away.
func (c *Client) Connect(ctx context.Context) error {
	if c.store.HadSession() {
		return nil
	}
	err := c.store.Insist(ctx, func(ctx context.Context) error {
		_, err := c.sessions.Open(ctx, false)
		return err
	})
	return c.store.Explain(ctx, err)
}

// Owners returns the owners of the client's locks.
func (c *Client) Owners() *ledger.Owners { return c.owners }

// ContextOf returns the context of the hold of an attempt; nil: the client does not hold it.
func (c *Client) ContextOf(attempt string) context.Context {
	if h := c.ledger.HeldBy(attempt); h != nil {
		return h.Context()
	}
	return nil
}

// Holder returns the session of the lock and its owner.
func (l *Lock) Holder() (session, host, thread string) {
	return l.hold.In.ID, l.hold.Owner.Host, l.hold.Owner.Thread
}

// Confirm asks the database whether the lock is held.
func (l *Lock) Confirm(ctx context.Context) error {
	within, done := l.hold.Within(ctx)
	defer done()
	if err := l.hold.Entries.Lock(within); err != nil {
		return err
	}
	defer l.hold.Entries.Unlock()
	if err := context.Cause(l.hold.Context()); err != nil {
		return err
	}
	return l.client.confirm(ctx, l.hold)
}
