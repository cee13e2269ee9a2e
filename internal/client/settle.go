package client

import (
	"context"
	"errors"
	"slices"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// settle reads the mode of a hold, if it is not known.
func (c *Client) settle(ctx context.Context, h *hold) error {
	if err := c.single(ctx, h); err != nil || !h.mode.Load().vague() {
		return err
	}
	if err := lockWithin(ctx, h.conversion.TryLock); err != nil {
		return err
	}
	defer h.conversion.Unlock()
	err := c.ascertain(ctx, h)
	if errors.Is(err, driver.ErrNotHeld) {
		c.lose(h, err)
		err = lost(err)
	}
	return err
}

// ascertain finds out what a hold is after an unanswered conversion, and makes the member of a
// cohort a holder by itself. MUST be called with conversion locked.
func (c *Client) ascertain(ctx context.Context, h *hold) error {
	was := h.mode.Load()
	if h.ctx.Err() != nil {
		return nil
	}
	if err := c.single(ctx, h); err != nil || !was.vague() {
		return err
	}
	state, err := c.store.Look(ctx, h.in.ID, h.name)
	if err != nil {
		return err
	}
	for _, own := range state.Granted {
		if own.Attempt != h.id {
			continue
		}
		now := *was
		now.doubt = lookedUp
		now.token = own.Grant.Token
		now.last = now.token
		switch {
		case state.Sharing == 0:
			now.units, now.of = 0, 0
			if was.doubt == yielding { // its Downgrade may still run: not with another token
				now.token, err = raise(ctx, h.in, driver.Held{Name: h.name, Session: h.in.ID, Token: now.token}, now.token+1)
				now.last = now.token
				if errors.Is(err, driver.ErrNotHeld) { // it has run since the look, or the lock is gone
					return c.ascertain(ctx, h)
				}
				if err != nil {
					return err
				}
			}
		case now.units == 0:
			now.units, now.of = 1, driver.Readers
		}
		h.mode.Store(&now)
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
func (c *Client) confirm(ctx context.Context, h *hold) error {
	return c.store.Insist(ctx, func(ctx context.Context) error {
		state, err := c.store.Look(ctx, h.in.ID, h.name)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(state.Granted, func(own driver.OwnGrant) bool { return own.Attempt == h.id }) {
			return nil
		}
		c.lose(h, driver.ErrNotHeld)
		return lost(driver.ErrNotHeld)
	})
}

// single makes the member of a cohort a holder by itself.
func (c *Client) single(ctx context.Context, h *hold) error {
	done := c.split(h)
	if done == nil {
		return nil
	}
	select {
	case <-done:
		return h.over()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
