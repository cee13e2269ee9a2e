package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// unlock takes back one entry, and releases the lock with the last one.
func (c *Client) unlock(ctx context.Context, h *ledger.Hold) error {
	if over := h.In.Over(); over != nil { // before the session's own goroutine has noticed
		c.ledger.Lose(over, h)
		if c.ledger.State(h.Attempt) != ledger.ReleasedTx {
			<-h.Context().Done() // ended by the goroutine that took the hold out of the ledger
		}
	}
	if err := h.Ended(); err != nil {
		return err
	}
	entries := c.ledger.Leave(h)
	if entries > 1 || entries == 0 && c.ledger.State(h.Attempt) == ledger.Gone { // others remain, or unlocked before
		return nil
	}
	if err := c.store.Begin(); err != nil {
		if h.Context().Err() != nil { // UnlockAll could not release it, and Close does not find it
			c.tellEnded(h, err)
		}
		return err
	}
	defer c.store.Done()
	// Before the wait for a call whose statement is in flight: that call, and those that wait for
	// it, end with the hold.
	if !c.ledger.Drop(h, errUnlocked) { // ended by the goroutine that took it out of the ledger
		<-h.Context().Done()
		if err := h.Ended(); err != nil {
			return err
		}
	}
	err := c.release(ctx, h)
	c.tellEnded(h, err)
	return err
}

// releaseFor releases a dropped hold that its holder did not unlock.
func (c *Client) releaseFor(h *ledger.Hold, cause error) error {
	ctx := c.store.Tidying
	if c.ledger.State(h.Attempt) != ledger.Releasing { // a transaction of UnlockTx may still be open
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, contract.CleanupTimeout)
		defer cancel()
	}
	err := c.release(ctx, h)
	if errors.Is(err, ErrLost) {
		c.tellEnded(h, err)
	}
	c.tellEnded(h, cause)
	if err != nil && !(c.ledger.Entered(h) == 0 && errors.Is(err, ErrLost)) { // an Unlock in flight has released it
		return fmt.Errorf("unlocking %q: %w", h.Name, err)
	}
	return nil
}

// release releases a hold that was taken out of the ledger: to the next member of its cohort, or in
// the database. It is safe to repeat: after a lost answer, a lock that is not held any more counts
// as released. If ctx ends first, the lock is released in the background.
func (c *Client) release(ctx context.Context, h *ledger.Hold) error {
	if c.ledger.State(h.Attempt) == ledger.Gone { // UnlockTx has released it, and the client knows
		c.promote(ctx, h)
		return nil
	}
	if err := h.Entries.Lock(ctx); err != nil {
		h.Member.Leave(true)
		c.abandon(h.In, h.Attempt, store.Unsure)
		return err
	}
	defer h.Entries.Unlock()
	if h.Guarded.Load() { // by a transaction that has locked the whole database
		c.split(h)
	}
	switch passed, err := h.Member.Pass(ctx); {
	case err != nil:
		c.abandon(h.In, h.Attempt, store.Something)
		return err
	case passed:
		c.record(h, history.Released, "")
		return nil
	}
	queued := true // true: UnlockTx may have detached the members behind; the next read of the name shows it
	defer func() { h.Member.Leave(queued) }()
	for tries := c.store.Tries(store.Patient); ; {
		contended := h.Grant.Contended || c.ledger.State(h.Attempt) != ledger.Releasing
		r := protocol.Release(h.Held(), contended, h.Guarded.Load())
		if h.Mode.Load().Doubt != ledger.Certain {
			r = protocol.Undo(h.In.ID, h.Name, h.ID)
			r.Guarded = h.Guarded.Load()
		}
		left, err := h.In.Release(ctx, r)
		switch {
		case err == nil && (left || r.Cause == protocol.ByAttempt):
			queued = false // the transaction was rolled back
			c.ledger.Move(h.Attempt, ledger.Finish)
			c.record(h, history.Released, "")
			return nil
		case err == nil:
			return c.released(ctx, h)
		case errors.Is(err, driver.ErrGuarded): // the next holder gets the lock once the transaction has ended
			c.abandon(h.In, h.Attempt, store.Something)
			c.record(h, history.Released, "")
			return nil
		case !h.In.Alive(): // it was held when Unlock began, and is no loss
			c.ledger.Move(h.Attempt, ledger.Finish)
			return driver.Fail(driver.ErrUnavailable, fmt.Errorf(
				"the lock ended with its session, and the database did not say that it is released: %w", err,
			))
		}
		h.Entries.Unanswered = h.Entries.Unanswered || store.ResidueOf(err) == store.Unsure
		if !tries.Again(ctx, err) {
			c.abandon(h.In, h.Attempt, store.Unsure)
			return err
		}
	}
}

// released ends the release of a hold that the database does not have. The hold is lost, unless
// UnlockTx or an earlier Unlock may have released it.
func (c *Client) released(ctx context.Context, h *ledger.Hold) error {
	switch lost := c.ledger.Absent(h); {
	case !lost:
		c.record(h, history.Released, "")
		c.promote(ctx, h)
	case !h.Entries.Unanswered:
		return contract.Lost(driver.ErrNotHeld)
	}
	return nil
}

// promote transfers a name that UnlockTx left free with a queue, on the engines that leave it so.
// Without promote a waiter takes the name when it next reads it.
func (c *Client) promote(ctx context.Context, h *ledger.Hold) {
	_, err := h.In.TakeOver(ctx, h.Name, protocol.Holder{})
	if err != nil && !c.store.Transient(err) {
		c.config.Log.Warn("dblock: the transfer after UnlockTx failed", "name", h.Name, "error", err)
	}
}
