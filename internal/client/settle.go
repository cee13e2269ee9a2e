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
	err := c.readMode(ctx, h)
	if errors.Is(err, driver.ErrNotHeld) {
		c.ledger.Lose(err, h)
		err = lost(err)
	}
	return err
}

// readMode reads the mode of a hold, unless it is known or the hold has ended. MUST be called with
// Mode locked.
func (c *Client) readMode(ctx context.Context, h *ledger.Hold) error {
	was := h.Mode.Load()
	for was.Vague() && h.Context().Err() == nil {
		state, err := c.store.Look(ctx, h.In.ID, h.Name)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(state.Granted, func(own driver.OwnGrant) bool { return own.Attempt == h.ID })
		if i < 0 {
			return driver.ErrNotHeld
		}
		now := *was
		now.Doubt, now.Token = ledger.LookedUp, state.Granted[i].Grant.Token
		switch {
		case state.Sharing == 0:
			now.Units, now.Of = 0, 0
		case now.Units == 0:
			now.Units, now.Of = 1, protocol.Readers
		}
		// Its Downgrade may still run, but not with another token.
		if state.Sharing == 0 && was.Doubt == ledger.Yielding {
			held := protocol.Held{Name: h.Name, Session: h.In.ID, Token: now.Token}
			now.Token, err = raise(ctx, h, held, held.Token+1)
			if errors.Is(err, driver.ErrNotHeld) { // it has run since the look, or the lock is gone
				continue
			}
			if err != nil {
				return err
			}
		}
		now.Last = now.Token
		h.Mode.Store(&now)
		break
	}
	return nil
}

// raise lifts the token of a hold in the database, which knows it as held.
func raise(ctx context.Context, h *ledger.Hold, held protocol.Held, token int64) (raised int64, err error) {
	result, err := h.In.Do(ctx, protocol.Raise{Held: held, Attempt: h.ID, To: token})
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
