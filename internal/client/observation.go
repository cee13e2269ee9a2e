package client

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
)

// What the observer was told of a hold.
const (
	unobserved int32 = iota
	observedGrant
	observedEnd // or will be, after that it was acquired
)

// tellStart tells the observer of an attempt, which goes on with the context that it returns. end
// or tellAcquired MUST be called with its outcome.
func (c *Client) tellStart(ctx context.Context, a Acquisition) (context.Context, *observation) {
	if c.config.Observer == nil {
		return ctx, nil
	}
	s := &observation{observer: c.config.Observer, attempt: a, began: time.Now()}
	s.ctx = s.observer.AcquireStart(ctx, a)
	return s.ctx, s
}

// tellStarts is tellStart for several names. They go on under contexts of their own.
func (c *Client) tellStarts(ctx context.Context, requests []driver.Request, wait bool) (all observations) {
	if c.config.Observer == nil {
		return nil
	}
	for i := range requests {
		_, one := c.tellStart(ctx, attemptAt(&requests[i], wait))
		all = append(all, one)
	}
	return all
}

// tellAcquired tells the observer of a new hold, and then of its end, if it has ended already.
func (c *Client) tellAcquired(s *observation, h *hold) {
	if c.config.Observer == nil {
		return
	}
	s.end(h.mode.Load().token, nil)
	if !h.observed.CompareAndSwap(unobserved, observedGrant) {
		c.tell(h, context.Cause(h.ctx))
	}
}

// tellEnded tells the observer once that a hold has ended: with ErrLost or ErrClosed, or else
// because it was unlocked. A hold that it was not told of is none to it.
func (c *Client) tellEnded(h *hold, err error) {
	if c.config.Observer != nil && !h.observed.CompareAndSwap(unobserved, observedEnd) && h.observed.CompareAndSwap(observedGrant, observedEnd) {
		c.tell(h, err)
	}
}

func (c *Client) tell(h *hold, err error) {
	if !errors.Is(err, ErrLost) && !errors.Is(err, ErrClosed) {
		err = nil
	}
	c.config.Observer.HoldEnd(h.name, h.mode.Load().token, c.config.Clock.Now()-h.began, err)
}
