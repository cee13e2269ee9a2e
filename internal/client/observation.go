package client

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/observe"
)

// The states of a hold for the observer.
const (
	unobserved int32 = iota
	observedGrant
	observedEnd // reported, or to be reported after the grant
)

// tellStart reports an attempt to the observer. The attempt continues with the returned context.
// The caller MUST then call end or tellAcquired.
func (c *Client) tellStart(ctx context.Context, a observe.Attempt) (context.Context, *observation) {
	if c.observer == nil {
		return ctx, nil
	}
	s := &observation{observer: c.observer, ctx: ctx, attempt: a, began: time.Now()}
	if c.observer.AcquireStart != nil {
		s.ctx = c.observer.AcquireStart(ctx, a)
	}
	return s.ctx, s
}

// tellStarts is tellStart for several names, each of which gets a context of its own.
func (c *Client) tellStarts(ctx context.Context, requests []protocol.Request, wait bool) (all observations) {
	if c.observer == nil {
		return nil
	}
	for i := range requests {
		_, one := c.tellStart(ctx, attemptAt(&requests[i], wait))
		all = append(all, one)
	}
	return all
}

// tellAcquired reports a new hold to the observer, and then its end, if it has ended already.
func (c *Client) tellAcquired(s *observation, h *ledger.Hold) {
	if c.observer == nil {
		return
	}
	s.end(h.Mode.Load().Token, nil)
	if !h.Observed.CompareAndSwap(unobserved, observedGrant) {
		c.tell(h, context.Cause(h.Context()))
	}
}

// tellEnded reports the end of a hold to the observer, once: with ErrLost or ErrClosed, or with nil
// after Unlock. It reports no hold before tellAcquired has.
func (c *Client) tellEnded(h *ledger.Hold, err error) {
	if c.observer != nil && !h.Observed.CompareAndSwap(unobserved, observedEnd) &&
		h.Observed.CompareAndSwap(observedGrant, observedEnd) {
		c.tell(h, err)
	}
}

func (c *Client) tell(h *ledger.Hold, err error) {
	if !errors.Is(err, ErrLost) && !errors.Is(err, ErrClosed) {
		err = nil
	}
	if c.observer.HoldEnd != nil {
		held := c.config.Clock.Now() - h.Began
		c.observer.HoldEnd(observe.HoldResult{Name: h.Name, Token: h.Mode.Load().Token, Held: held, Err: err})
	}
}

// record adds an event of a hold to the history.
func (c *Client) record(h *ledger.Hold, kind, detail string) {
	if c.history.On() {
		c.history.Add(h.Event(kind, Clean(detail, MaxReason)))
	}
}
