package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// gone is the cause with which a hold ends that was not unlocked: lost, unless the database has it
// no more after an UnlockTx. That the transaction was rolled back, and the lock taken over then,
// cannot be told from its commit.
func (h *hold) gone(reason error) error {
	if h.departure.possible() && h.grip.over() == nil && !errors.Is(reason, errLeaseOver) {
		return fmt.Errorf("%w: released by UnlockTx", driver.ErrNotHeld)
	}
	return fmt.Errorf("dblock: %q: %w", h.name, lost(reason))
}

// lose ends a hold that was not unlocked.
func (c *Client) lose(h *hold, reason error) {
	cause := h.gone(reason)
	if c.registry.take(h, h.loss()) {
		c.end(h, cause)
	}
}

// end ends the context of a hold that is not relied upon any more.
func (c *Client) end(h *hold, cause error) {
	h.unwatch()
	h.cancel(cause)
	if errors.Is(cause, ErrLost) {
		c.history.record(h, KindLost, fmt.Sprint(cause))
		c.config.Log.Warn("dblock: lock lost", "name", h.name, "token", h.mode.Load().token, "because", cause)
	}
}

// rely makes a hold of a grant, unless that came too late. Of a grant that was asked for at a time,
// by the client's clock, a fixed lease is counted from then.
func (c *Client) rely(ctx context.Context, s *clientSession, k *claim, g grip, r driver.Request, o Owner, got driver.Grant, asked time.Duration) (*hold, bool) {
	h := &hold{
		claim: k, grip: g, owner: o, contended: got.Contended, fixed: got.Lease != 0, entries: 1, metadata: r.Metadata, asked: make(chan string, 1),
	}
	h.mode.Store(&mode{token: got.Token, units: r.Units, of: r.Of})
	h.ctx, h.cancel = context.WithCancelCause(h.under(context.WithoutCancel(ctx), c.owners))
	now := c.config.Clock()
	h.end = leaseEnd(got.Lease, asked, now)
	before, added := c.registry.add(h, func() bool {
		if !s.Alive() || h.fixed && h.end <= now {
			return false
		}
		unwatchSession := context.AfterFunc(s.Context(), func() { c.lose(h, context.Cause(s.Context())) })
		h.unwatch = func() { unwatchSession() }
		if h.fixed {
			unwatchLease := c.config.Clock.Alarm(h.end, func() { c.lose(h, errLeaseOver) })
			h.unwatch = func() { unwatchSession(); unwatchLease() }
		}
		return true
	})
	if !added {
		return nil, false
	}
	if before != nil { // the database took it from that one, and the client has not heard of it yet
		c.end(before, before.gone(errGrantedAgain))
	}
	c.history.record(h, KindGranted, "")
	return h, true
}

// leaseEnd is when a fixed lease that was asked for and answered then is over here, with the same
// margin as a session's.
func leaseEnd(lease, asked, now time.Duration) time.Duration {
	return asked + lease - lease/100 - 2*(now-asked)
}

// tooLate reports whether a fixed lease was over here before its grant was.
func tooLate(lease, asked, now time.Duration) bool {
	return lease != 0 && leaseEnd(lease, asked, now) <= now
}
