package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// unlock takes back one entry; with the last one the lock goes to the next.
func (c *Client) unlock(ctx context.Context, h *hold) error {
	if err := h.ended(); err != nil { // whatever is under way
		return err
	}
	if err := lockWithin(ctx, h.mu.TryLock); err != nil {
		return err
	}
	defer h.mu.Unlock()
	if over := h.in.Over(); over != nil { // it is about to be said
		c.lose(h, over)
		if c.registry.state(h.attempt) != ReleasedTx {
			<-h.ctx.Done() // whatever took it out of the registry ends it
		}
	}
	if err := h.ended(); err != nil {
		return err
	}
	if h.entries > 1 {
		h.entries--
		return nil
	}
	if h.entries == 0 && c.registry.state(h.attempt) == Gone { // it was unlocked before, and nothing is left of it
		return nil
	}
	h.entries = 0
	if err := c.store.Begin(); err != nil {
		if h.ctx.Err() != nil { // UnlockAll could not release it: Close finds it no more
			c.tellEnded(h, err)
		}
		return err
	}
	defer c.store.Done()
	if !c.drop(h, errUnlocked) { // another has taken it out of the registry, and ends it
		<-h.ctx.Done()
		if err := h.ended(); err != nil {
			return err
		}
	}
	err := c.release(ctx, h)
	c.tellEnded(h, err)
	return err
}

// drop ends a hold that is about to be released; false if it has ended already.
func (c *Client) drop(h *hold, cause error) bool {
	held := c.registry.take(h, unlock)
	if held {
		c.end(h, cause)
	}
	return held
}

// takeBack releases a dropped hold for its holder, who did not unlock it.
func (c *Client) takeBack(h *hold, cause error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	ctx := c.store.Tidying
	if c.registry.state(h.attempt) == Settling { // the transaction of UnlockTx may still be open, for as long as the application likes
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, contract.CleanupTimeout)
		defer cancel()
	}
	err := c.release(ctx, h)
	if errors.Is(err, ErrLost) {
		c.tellEnded(h, err)
	}
	c.tellEnded(h, cause)
	if err != nil && !(h.entries == 0 && errors.Is(err, ErrLost)) { // an Unlock under way has done it
		return fmt.Errorf("unlocking %q: %w", h.name, err)
	}
	return nil
}

// release gives what is not relied upon any more to the next. It is safe to repeat: after an answer
// that was lost, not to hold the lock any more is success. MUST be called with the hold's mu
// locked.
func (c *Client) release(ctx context.Context, h *hold) error {
	if c.registry.state(h.attempt) == Gone { // UnlockTx has released it, as the client has heard
		c.promote(ctx, h)
		return nil
	}
	if h.guarded.Load() { // by a transaction that has locked the whole database
		c.split(h)
	}
	switch passed, err := h.member.Pass(ctx); {
	case err != nil:
		c.abandon(h.in, h.attempt, false)
		return err
	case passed:
		c.history.record(h, KindReleased, "")
		return nil
	}
	queued := true // members that an UnlockTx may have detached: if that is not known, a look tells
	defer func() { h.member.Leave(queued) }()
	for tries := c.store.Tries(store.Patient); ; {
		r := protocol.Release(h.held(), h.contended || c.registry.state(h.attempt) != Releasing, h.guarded.Load())
		if h.mode.Load().doubt != certain {
			r = protocol.Undo(h.in.ID, h.name, h.id)
			r.Guarded = h.guarded.Load()
		}
		left, err := h.in.Release(ctx, r)
		switch {
		case err == nil && (left || r.Cause == driver.ByAttempt):
			queued = false // the transaction was rolled back
			c.registry.transition(h.attempt, finish)
			c.history.record(h, KindReleased, "")
			return nil
		case err == nil:
			return c.released(ctx, h)
		case errors.Is(err, driver.ErrGuarded): // the lock counts as released; the next holder gets it once the transaction has ended
			c.abandon(h.in, h.attempt, false)
			c.history.record(h, KindReleased, "")
			return nil
		case !h.in.Alive(): // it was held when Unlock began, and is no loss
			c.registry.transition(h.attempt, finish)
			return driver.Fail(driver.ErrUnavailable, fmt.Errorf(
				"the lock ended with its session, and the database did not say that it is released: %w", err,
			))
		}
		h.unanswered = h.unanswered || store.ResidueOf(err) == store.Unsure
		if !tries.Again(ctx, err) {
			c.abandon(h.in, h.attempt, true)
			return err
		}
	}
}

// released is what follows when the database does not have a hold that is being released. The hold
// is lost, unless UnlockTx or an earlier Unlock may have released it.
func (c *Client) released(ctx context.Context, h *hold) error {
	was := c.registry.state(h.attempt)
	c.registry.transition(h.attempt, finish)
	switch {
	case was != Releasing:
		c.history.record(h, KindReleased, "")
		c.promote(ctx, h)
	case !h.unanswered:
		return lost(driver.ErrNotHeld)
	}
	return nil
}

// promote hands on a name that UnlockTx left free with a queue, where the engine does it so. It is
// a hint like any wake-up: a waiter that hears nothing does it itself.
func (c *Client) promote(ctx context.Context, h *hold) {
	_, err := h.in.Reclaim(ctx, h.name, driver.Holder{})
	if err != nil && !c.store.Transient(err) {
		c.config.Log.Warn("dblock: handing on after UnlockTx failed", "name", h.name, "error", err)
	}
}
