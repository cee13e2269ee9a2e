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

// Reconcile compares the claims of a session in the database with those of the client. A claim that
// the client does not know is released: its statement ran after its caller had given up. One that
// the database does not have is lost: to the same owner elsewhere, to an operator, or in a failover
// to a server without the grant. The list of the known claims is no proof of that: the token of a
// lock may have changed meanwhile. A list of all claims is.
func (k keeper) Reconcile(ctx context.Context, in *session.Session, list session.List) error {
	s := k.sessions.Last()
	if s == nil || s.Session != in {
		return nil
	}
	believed := k.ledger.Of(s) // before the list is read: it lacks later grants
	overdue := k.ledger.Overdue()
	before := time.Duration(k.reconciled.Swap(int64(k.config.Clock.Now())))
	listed, err := list(ctx, known(believed, overdue))
	if err == nil && k.lacks(s, listed, believed) { // a second answer confirms the loss
		listed, err = list(ctx, nil)
	}
	if err != nil {
		return err
	}
	if k.sessions.Last() != s || k.store.Begin() != nil {
		return nil
	}
	defer k.store.Done()
	for _, has := range listed {
		switch claim := believed[has.Attempt]; {
		case has.Asked != "": // before the reason reaches the holder: it is for no later claim
			if present := k.ledger.HeldBy(has.Attempt); present != nil {
				k.ledger.Split(present)
			}
		case claim != nil && claim.Began < before: // for longer than a heartbeat: the database shall show the holder
			k.ledger.Split(claim)
		}
		delete(believed, has.Attempt)
		delete(overdue, has.Attempt)
		if unknown := k.ledger.Recognize(s, has); unknown != nil {
			k.ledger.Abandon(unknown, store.Something)
		}
	}
	for _, claim := range overdue { // the database has taken it away
		k.ledger.Finish(claim.Grant, true)
	}
	k.ledger.Lose(ctx, ledger.ErrDisowned, slices.Collect(maps.Values(believed))...)
	return nil
}

// known returns claims as the database lists them. It is never nil.
func known(claims ...map[string]*ledger.Claim) []driver.Claim {
	all := []driver.Claim{}
	for _, of := range claims {
		for _, c := range of {
			all = append(all, c.AsListed())
		}
	}
	return all
}

// lacks reports whether a claim that has not ended meanwhile is missing in those that the database
// lists for its session.
func (k keeper) lacks(s *store.Session, listed []driver.Claim, believed map[string]*ledger.Claim) bool {
	missing := maps.Clone(believed)
	for _, has := range listed {
		delete(missing, has.Attempt)
	}
	if len(missing) == 0 {
		return false
	}
	held := k.ledger.Of(s)
	maps.DeleteFunc(missing, func(attempt string, c *ledger.Claim) bool { return held[attempt] != c })
	return len(missing) > 0
}
