package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/contract"
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
	if over := h.in.over(); over != nil { // it is about to be said
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
	if err := c.begin(); err != nil {
		if h.ctx.Err() != nil { // UnlockAll could not release it: Close finds it no more
			c.tellEnded(h, err)
		}
		return err
	}
	defer c.done()
	if !c.drop(h, errUnlocked) { // another has taken it out of the registry, and ends it
		<-h.ctx.Done()
		if err := h.ended(); err != nil {
			return err
		}
	}
	err := c.rows(h).release(ctx, h)
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
	ctx := c.tidying
	if c.registry.state(h.attempt) == Settling { // the transaction of UnlockTx may still be open, for as long as the application likes
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, contract.CleanupTimeout)
		defer cancel()
	}
	err := c.rows(h).release(ctx, h)
	if errors.Is(err, ErrLost) {
		c.tellEnded(h, err)
	}
	c.tellEnded(h, cause)
	if err != nil && !(h.entries == 0 && errors.Is(err, ErrLost)) { // an Unlock under way has done it
		return fmt.Errorf("unlocking %q: %w", h.name, err)
	}
	return nil
}
