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

// Store returns the client's database.
func (c *Client) Store() *store.Store { return c.store }

// Sessions returns the client's sessions.
func (c *Client) Sessions() *store.Sessions { return c.sessions }

// History returns the client's history.
func (c *Client) History() *history.History { return c.report.history }

// Host returns the host that the client's locks show.
func (c *Client) Host() string { return c.config.Host }

// Log returns the client's logger. Its calls are queued.
func (c *Client) Log() *slog.Logger { return c.config.Log }

// Clock returns the client's clock.
func (c *Client) Clock() clock.Clock { return c.config.Clock }

// Observer returns the client's observer; the zero Observer if it has none. Its calls are queued.
func (c *Client) Observer() observe.Observer {
	if c.report.observer == nil {
		return observe.Observer{}
	}
	return *c.report.observer
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

// ContextOf returns the context of the lock that is held by an attempt; nil: there is none.
func (c *Client) ContextOf(attempt string) context.Context {
	if claim := c.ledger.HeldBy(attempt); claim != nil {
		return claim.Context()
	}
	return nil
}

// Note adds an event of the lock to the history, if the client writes one.
func (l *Lock) Note(kind, detail string) { l.client.report.record(l.claim, kind, detail) }

// Holder returns the session of the lock and its owner.
func (l *Lock) Holder() (session, host, thread string) {
	return l.claim.Grant.In.ID, l.claim.Owner.Host, l.claim.Owner.Thread
}
