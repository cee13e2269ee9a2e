package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// unlock takes back one entry, and releases the lock with the last one. It ends with ctx, also
// where that has ended before.
func (l *Lock) unlock(ctx context.Context) (err error) {
	if err := store.LockWithin(ctx, l.mu.TryLock); err != nil {
		return err
	}
	defer l.mu.Unlock()
	if l.unlocked {
		return l.outcome
	}
	defer func() {
		l.outcome = err
		l.unlocked = err == nil || errors.Is(err, ErrLost)
	}()
	c, claim := l.client, l.claim
	// The context has ended by the clock. A heartbeat that is answered late may still let the
	// session live on: the ledger must not keep the lock for it.
	if over := claim.Grant.In.Over(); over != nil {
		c.ledger.Lose(ctx, over, claim)
		if !c.ledger.ReleasedTx(claim) {
			<-claim.Context().Done() // ended by the goroutine that ended the claim
		}
	}
	if err := claim.Revoked(); err != nil {
		return err
	}
	entries := c.ledger.Leave(claim)
	if entries > 1 || entries == 0 && c.ledger.StateOf(claim) == ledger.Ended { // others remain, or unlocked before
		return nil
	}
	if err := c.store.Begin(); err != nil {
		if claim.Context().Err() != nil { // Locks.Unlock could not release it, and Close does not find it
			c.report.ended(claim, err)
		}
		return err
	}
	defer c.store.Done()
	// Before the wait for a call whose statement is in flight: that call, and those that wait for
	// it, end with the lock.
	if err := c.ledger.Quit(claim, errUnlocked); err != nil {
		return err
	}
	if err = c.release(ctx, claim); errors.Is(err, ErrLost) && errors.Is(err, driver.ErrNotHeld) {
		err = c.absent(ctx, claim, err)
	}
	c.report.ended(claim, err)
	return err
}

// releaseFor releases the lock of a claim that was dropped, and that its holder did not unlock.
func (c *Client) releaseFor(claim *ledger.Claim, cause error) error {
	ctx := c.store.Tidying
	if c.ledger.Unsettled(claim) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, contract.CleanupTimeout)
		defer cancel()
	}
	err := c.release(ctx, claim)
	if errors.Is(err, ErrLost) {
		c.report.ended(claim, err)
	}
	c.report.ended(claim, cause)
	if err != nil && !(c.ledger.Entered(claim) == 0 && errors.Is(err, ErrLost)) { // an Unlock in flight has released it
		return fmt.Errorf("unlocking %q: %w", claim.Request.Name, err)
	}
	return nil
}

// release releases the lock of a claim that was dropped: to the next claim, or in the database. It
// is safe to repeat: after a lost answer, a lock that is not held any more counts as released. If
// ctx ends first, the lock is released in the background.
func (c *Client) release(ctx context.Context, claim *ledger.Claim) error {
	g := claim.Grant
	if c.ledger.StateOf(claim) == ledger.Ended { // UnlockTx has released it, and the client knows
		c.promote(ctx, g)
		return nil
	}
	if err := g.Order.Lock(ctx); err != nil {
		c.ledger.Abandon(g, store.Unsure)
		return err
	}
	defer g.Order.Unlock()
	if g.Guarded.Load() { // by a transaction that has locked the whole database
		c.ledger.Split(claim)
	}
	switch passed, err := c.ledger.Pass(ctx, claim); {
	case err != nil:
		c.ledger.Abandon(g, store.Something)
		return err
	case passed:
		c.report.record(claim, history.Released, "")
		return nil
	}
	contended := g.Given.Contended || c.ledger.Unsettled(claim)
	for tries := c.store.Tries(store.Patient); ; {
		r := protocol.Release(claim.Held(), contended, g.Guarded.Load())
		if g.Mode.Load().Knowledge != ledger.Known {
			r = protocol.Undo(g.In.ID, g.Name, g.ID)
			r.Guarded = g.Guarded.Load()
		}
		left, err := g.In.Release(ctx, r)
		switch {
		case err == nil && (left || r.Cause == protocol.ByAttempt):
			c.ledger.Finish(g, false) // a transaction that has split claims off was rolled back
			c.report.record(claim, history.Released, "")
			return nil
		case err == nil && c.ledger.Absent(claim):
			return lost(driver.ErrNotHeld)
		case err == nil:
			c.report.record(claim, history.Released, "")
			c.promote(ctx, g)
			return nil
		case errors.Is(err, driver.ErrGuarded): // the next holder gets the lock once the transaction has ended
			c.ledger.Abandon(g, store.Something)
			c.report.record(claim, history.Released, "")
			return nil
		case !g.In.Alive(): // it was held when Unlock began, and is no loss
			c.ledger.Finish(g, true)
			return driver.Fail(driver.ErrUnavailable, fmt.Errorf(
				"the lock ended with its session, and the database did not say that it is released: %w", err,
			))
		}
		if store.ResidueOf(err) == store.Unsure {
			c.ledger.ReleaseUnanswered(g)
		}
		if !tries.Again(ctx, err) {
			c.ledger.Abandon(g, store.Unsure)
			return err
		}
	}
}

// absent returns the error of a lock that the database did not have when its holder gave it up.
func (c *Client) absent(ctx context.Context, claim *ledger.Claim, err error) error {
	if broken := (keeper{c}).Breakers(ctx, []*ledger.Claim{claim})[claim]; broken != nil {
		return lost(broken)
	}
	return err
}

// promote transfers a name that UnlockTx left free with a queue, on the engines that leave it so.
// Without promote a waiter takes the name when it next reads it.
func (c *Client) promote(ctx context.Context, g *ledger.Grant) {
	_, err := g.In.TakeOver(ctx, g.Name, protocol.Holder{})
	if err != nil && !c.store.Transient(err) {
		c.config.Log.Warn("dblock: the transfer after UnlockTx failed", "name", g.Name, "error", err)
	}
}

// stall ends a lock without progress, and releases it. The holder's Unlock returns ErrLost.
func (c *Client) stall(claim *ledger.Claim, silent time.Duration) {
	if c.store.Begin() != nil {
		return // Close releases it
	}
	defer c.store.Done()
	stalled := fmt.Errorf("%w for %v", contract.ErrStalled, silent)
	cause := fmt.Errorf("dblock: %q: %w", claim.Request.Name, lost(stalled))
	if !c.ledger.Drop(claim, cause) {
		return
	}
	c.report.record(claim, history.Lost, fmt.Sprint(cause))
	c.ledger.LogLoss(claim)
	c.report.ended(claim, cause)
	if err := c.releaseFor(claim, cause); err != nil && !errors.Is(err, ErrLost) {
		c.config.Log.Warn("dblock: a lock whose holder stalled is released later", "error", err)
	}
}
