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
// the grant. The list of the known claims is no proof of that: the token of a hold may have changed
// meanwhile. A list of all claims is.
func (c *Client) reconcile(ctx context.Context, in *session.Session, list session.List) error {
	s := c.sessions.Last()
	if s == nil || s.Session != in {
		return nil
	}
	believed := c.ledger.Of(s) // before the list is read: it lacks later grants
	overdue := c.ledger.Overdue()
	before := time.Duration(c.reconciled.Swap(int64(c.config.Clock.Now())))
	listed, err := list(ctx, claims(believed, overdue))
	if err == nil && c.lacks(s, listed, believed) { // a second answer confirms the loss
		listed, err = list(ctx, nil)
	}
	if err != nil {
		return err
	}
	if c.sessions.Last() != s || c.store.Begin() != nil {
		return nil
	}
	defer c.store.Done()
	for _, has := range listed {
		switch h := believed[has.Attempt]; {
		case has.Asked != "":
			c.present(has.Attempt) // before the reason reaches the holder: it is for no later member
		case h != nil && h.Began < before:
			c.split(h) // held for longer than a heartbeat: the database shall show the holder
		}
		delete(believed, has.Attempt)
		delete(overdue, has.Attempt)
		if k := c.ledger.Found(has); k != nil {
			c.abandon(s, k, store.Something)
		}
	}
	for _, h := range overdue { // the database has taken it away
		c.ledger.Move(h.Attempt, ledger.Finish)
	}
	c.ledger.Lose(errDisowned, slices.Collect(maps.Values(believed))...)
	return nil
}

// claims returns the claims of holds. It is never nil.
func claims(holds ...map[string]*ledger.Hold) []driver.Claim {
	known := []driver.Claim{}
	for _, of := range holds {
		for _, h := range of {
			known = append(known, h.Claim())
		}
	}
	return known
}

// lacks reports whether a hold that has not ended meanwhile is missing in the listed claims of its
// session.
func (c *Client) lacks(s *store.Session, listed []driver.Claim, believed map[string]*ledger.Hold) bool {
	missing := maps.Clone(believed)
	for _, has := range listed {
		delete(missing, has.Attempt)
	}
	if len(missing) == 0 {
		return false
	}
	held := c.ledger.Of(s)
	maps.DeleteFunc(missing, func(attempt string, h *ledger.Hold) bool { return held[attempt] != h })
	return len(missing) > 0
}

// unknownGrant handles a hint about an attempt that has no waiter, or about none in particular
// (""). If the attempt holds a lock, that may be lost, or another client asks for it.
func (c *Client) unknownGrant(attempt string) {
	if c.ledger.Knows(attempt) || attempt == "" && c.ledger.Holding() { // held, or about to be
		c.sessions.Last().Check()
	}
}
