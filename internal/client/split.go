package client

import (
	"context"
	"errors"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

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

// present makes the member of a cohort that has the lock of an attempt its only holder in the
// database.
func (c *Client) present(attempt string) {
	if h := c.ledger.HeldBy(attempt); h != nil {
		c.split(h)
	}
}

// split makes the member of a cohort that has the lock its only holder in the database. The channel
// is closed once that has succeeded or failed. nil: the member is the only holder already, or has
// the lock no more.
func (c *Client) split(h *ledger.Hold) <-chan struct{} {
	if !h.Member.InOpenCohort() {
		return nil
	}
	return h.Member.Split(func(d protocol.Detachment) bool { return c.tellSplit(h, d) })
}

// tellSplit tells the database of a split until the outcome is known. It returns false if the
// members behind are not in the queue.
func (c *Client) tellSplit(h *ledger.Hold, d protocol.Detachment) (inQueue bool) {
	held := h.Held()
	within, cancel := contract.UntilClosed(c.store.Tidying, h.In.Context())
	defer cancel()
	return c.store.Retry(within, store.Undoing, func() error {
		_, err := h.In.Do(c.store.Tidying, protocol.Detach{Held: held, Member: d})
		switch {
		case err == nil:
			c.splitting.Worked()
			m := *h.Mode.Load()
			m.Last = m.Token
			h.Mode.Store(&m)
		case errors.Is(err, driver.ErrNotHeld):
			c.ledger.Lose(errDisowned, h)
			return nil // a transaction may have detached it, too
		case !c.store.Transient(err) && within.Err() == nil:
			c.splitting.Failed(err, "name", h.Name)
		}
		return err
	}) == nil
}
