package client

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/session"
)

// reconcile compares what a session has in the database with what the client believes that it has.
// What no handle has is given back: a statement that ran after its caller had given up. What a
// handle has and the database does not have is lost: taken by the same owner elsewhere, by an
// operator, or by a failover to a server that never heard of it.
func (c *Client) reconcile(
	ctx context.Context, in *session.Session, list func(context.Context) ([]driver.Claim, error),
) error {
	s := c.sessions.Last()
	if s == nil || s.Session != in {
		return nil
	}
	believed := c.ledger.Of(s) // before the question: what is granted after it is not in the answer
	overdue := c.ledger.Overdue()
	before := time.Duration(c.reconciled.Swap(int64(c.config.Clock.Now())))
	listed, err := list(ctx)
	if err == nil && lacks(listed, believed) { // no loss is believed of a single answer
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
			c.abandon(s, k, false)
		}
	}
	for _, k := range overdue { // somebody has taken it
		c.ledger.Move(k, ledger.Finish)
	}
	c.ledger.Lose(errDisowned, slices.Collect(maps.Values(believed))...)
	return nil
}

// lacks reports whether a hold is missing in a list of what the session has.
func lacks(listed []driver.Claim, believed map[string]*ledger.Hold) bool {
	found := 0
	for _, has := range listed {
		if believed[has.Attempt] != nil {
			found++
		}
	}
	return found < len(believed)
}

// unknownGrant follows a hint about an attempt that nobody waits with, or about none in particular
// (""): if it holds a lock, that may be lost, or somebody asks for it.
func (c *Client) unknownGrant(attempt string) {
	if c.ledger.Knows(attempt) || attempt == "" && c.ledger.Holding() { // held, or about to be
		c.sessions.Last().Check()
	}
}
