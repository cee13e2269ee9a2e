package client

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/session"
	"github.com/dblock-go/dblock/internal/store"
)

// reconcile compares the claims of a session in the database with the client's holds. A claim
// without a hold is released: its statement ran after its caller had given up. A hold without a
// claim is lost: to the same owner elsewhere, to an operator, or in a failover to a server without
// the grant.
func (c *Client) reconcile(
	ctx context.Context, in *session.Session, list func(context.Context) ([]driver.Claim, error),
) error {
	s := c.sessions.Last()
	if s == nil || s.Session != in {
		return nil
	}
	believed := c.ledger.Of(s) // before the list is read: it lacks later grants
	overdue := c.ledger.Overdue()
	before := time.Duration(c.reconciled.Swap(int64(c.config.Clock.Now())))
	listed, err := list(ctx)
	if err == nil && lacks(listed, believed) { // a second answer confirms the loss
		listed, err = list(ctx)
	}
	if err != nil {
		return err
	}
	if c.sessions.Last() != s || c.store.Begin() != nil {
		return nil
	}
	defer c.store.Done()
	for _, has := range listed {
		if h := believed[has.Attempt]; h != nil && h.Began < before {
			c.split(h) // held for longer than a heartbeat: the database shall show the holder
		}
		delete(believed, has.Attempt)
		delete(overdue, has.Attempt)
		if k := c.ledger.Found(has); k != nil {
			c.abandon(s, k, store.Something)
		}
	}
	for _, k := range overdue { // the database has taken it away
		c.ledger.Move(k, ledger.Finish)
	}
	c.ledger.Lose(errDisowned, slices.Collect(maps.Values(believed))...)
	return nil
}

// lacks reports whether a hold is missing in the listed claims of its session.
func lacks(listed []driver.Claim, believed map[string]*ledger.Hold) bool {
	found := 0
	for _, has := range listed {
		if believed[has.Attempt] != nil {
			found++
		}
	}
	return found < len(believed)
}

// unknownGrant handles a hint about an attempt that has no waiter, or about none in particular
// (""). If the attempt holds a lock, that may be lost, or another client asks for it.
func (c *Client) unknownGrant(attempt string) {
	if c.ledger.Knows(attempt) || attempt == "" && c.ledger.Holding() { // held, or about to be
		c.sessions.Last().Check()
	}
}
