package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/cohort"
	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// receipt is the result of an attempt that succeeded.
type receipt struct {
	store.Answer
	member *cohort.Member // waited for the lock; nil: it was granted without waiting
}

// rely makes a hold of the grant that an attempt got, unless the grant came too late.
func (c *Client) rely(
	ctx context.Context, s *store.Session, k *ledger.Attempt, r *protocol.Request, o ledger.Owner, got *receipt,
) (*ledger.Hold, bool) {
	h := c.ledger.NewHold(ctx, s, k, r, o, got.Grant, got.member)
	if !c.ledger.Rely(h, got.Asked) {
		return nil, false
	}
	c.record(h, history.Granted, "")
	return h, true
}

// ended follows up the end of a hold that was not unlocked: history, observer, cohort.
func (c *Client) ended(h *ledger.Hold, e ledger.Ending) {
	if e.Released() {
		c.record(h, history.Released, "")
	} else {
		c.recordLoss(h, e.Cause)
	}
	c.tellEnded(h, e.Cause)
	if h.Member != nil && c.store.Begin() == nil { // else Close ends the waiting
		defer c.store.Done()
		// the members behind request the lock again, unless the database may have them in the queue
		h.Member.Leave(true)
	}
}

func (c *Client) recordLoss(h *ledger.Hold, cause error) {
	c.record(h, history.Lost, fmt.Sprint(cause))
}

// stall ends a hold without progress, and releases it. The holder's Unlock returns ErrLost.
func (c *Client) stall(h *ledger.Hold, silent time.Duration) {
	if c.store.Begin() != nil {
		return // Close releases it
	}
	defer c.store.Done()
	cause := fmt.Errorf("dblock: %q: %w", h.Name, lost(fmt.Errorf("%w for %v", contract.ErrStalled, silent)))
	if !c.ledger.Drop(h, cause) {
		return
	}
	c.recordLoss(h, cause)
	c.ledger.LogLoss(h)
	c.tellEnded(h, cause)
	if err := c.releaseFor(h, cause); err != nil && !errors.Is(err, ErrLost) {
		c.config.Log.Warn("dblock: a lock whose holder stalled is released later", "error", err)
	}
}
