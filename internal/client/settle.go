package client

import (
	"context"
	"errors"
	"slices"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// settle reads the mode of a hold, unless it is known.
func (c *Client) settle(ctx context.Context, h *ledger.Hold) error {
	if err := c.single(ctx, h); err != nil || !h.Mode.Load().Vague() {
		return err
	}
	if err := store.LockWithin(ctx, h.Mode.TryLock); err != nil {
		return err
	}
	defer h.Mode.Unlock()
	err := c.ascertain(ctx, h)
	if errors.Is(err, driver.ErrNotHeld) {
		c.ledger.Lose(err, h)
		err = lost(err)
	}
	return err
}

// ascertain reads the mode of a hold after the answer to a conversion was lost, and makes the
// member of a cohort its only holder. MUST be called with Mode locked.
func (c *Client) ascertain(ctx context.Context, h *ledger.Hold) error {
	was := h.Mode.Load()
	if h.Context().Err() != nil {
		return nil
	}
	if err := c.single(ctx, h); err != nil || !was.Vague() {
		return err
	}
	state, err := c.store.Look(ctx, h.In.ID, h.Name)
	if err != nil {
		return err
	}
	for _, own := range state.Granted {
		if own.Attempt != h.ID {
			continue
		}
		now := *was
		now.Doubt = ledger.LookedUp
		now.Token = own.Grant.Token
		now.Last = now.Token
		switch {
		case state.Sharing == 0:
			now.Units, now.Of = 0, 0
			if was.Doubt == ledger.Yielding { // its Downgrade may still run, but not with another token
				now.Token, err = raise(ctx, h.In, driver.Held{Name: h.Name, Session: h.In.ID, Token: now.Token},
					now.Token+1)
				now.Last = now.Token
				if errors.Is(err, driver.ErrNotHeld) { // it has run since the look, or the lock is gone
					return c.ascertain(ctx, h)
				}
				if err != nil {
					return err
				}
			}
		case now.Units == 0:
			now.Units, now.Of = 1, driver.Readers
		}
		h.Mode.Store(&now)
		return nil
	}
	return driver.ErrNotHeld
}

// raise lifts the token of a hold in the database.
func raise(ctx context.Context, s *store.Session, h driver.Held, token int64) (raised int64, err error) {
	result, err := s.Do(ctx, protocol.Raise{Held: h, To: token})
	return result.Grant.Token, err
}

// confirm asks the database whether a hold is held.
func (c *Client) confirm(ctx context.Context, h *ledger.Hold) error {
	return c.store.Insist(ctx, func(ctx context.Context) error {
		state, err := c.store.Look(ctx, h.In.ID, h.Name)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(state.Granted, func(own driver.OwnGrant) bool { return own.Attempt == h.ID }) {
			return nil
		}
		c.ledger.Lose(driver.ErrNotHeld, h)
		return lost(driver.ErrNotHeld)
	})
}

// single makes the member of a cohort its only holder.
func (c *Client) single(ctx context.Context, h *ledger.Hold) error {
	done := c.split(h)
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return h.Over()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
