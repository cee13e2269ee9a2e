package client

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/history"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/observe"
)

// The states of a claim for the observer.
const (
	unobserved int32 = iota
	observedGrant
	observedEnd // reported, or to be reported after the grant
)

// reporter tells the observer and the history what happens to locks.
type reporter struct {
	clock    clock.Clock
	history  *history.History
	observer *observe.Observer // its calls are queued; nil: there is none
}

// start reports an attempt to the observer. The attempt continues with the returned context. The
// caller MUST then call observation.end or acquired.
func (r *reporter) start(ctx context.Context, a observe.Attempt) (context.Context, *observation) {
	if r.observer == nil {
		return ctx, nil
	}
	s := &observation{observer: r.observer, ctx: ctx, attempt: a, began: time.Now()}
	if r.observer.AcquireStart != nil {
		s.ctx = r.observer.AcquireStart(ctx, a)
	}
	return s.ctx, s
}

// starts is start for several names, each of which gets a context of its own.
func (r *reporter) starts(ctx context.Context, requests []protocol.Request, wait bool) (all observations) {
	if r.observer == nil {
		return nil
	}
	for i := range requests {
		_, one := r.start(ctx, attemptAt(&requests[i], wait))
		all = append(all, one)
	}
	return all
}

// acquired reports a new lock to the observer, and then its end, if it has ended already.
func (r *reporter) acquired(s *observation, c *ledger.Claim) {
	if r.observer == nil {
		return
	}
	s.end(c.Token(), nil)
	if !c.Observed.CompareAndSwap(unobserved, observedGrant) {
		r.tell(c, context.Cause(c.Context()))
	}
}

// ended reports the end of a lock to the observer, once: with ErrLost or ErrClosed, or with nil
// after Unlock. It reports no lock before acquired has.
func (r *reporter) ended(c *ledger.Claim, err error) {
	if r.observer != nil && !c.Observed.CompareAndSwap(unobserved, observedEnd) &&
		c.Observed.CompareAndSwap(observedGrant, observedEnd) {
		r.tell(c, err)
	}
}

func (r *reporter) tell(c *ledger.Claim, err error) {
	if !errors.Is(err, ErrLost) && !errors.Is(err, ErrClosed) {
		err = nil
	}
	if r.observer.HoldEnd != nil {
		held := r.clock.Now() - c.Began
		r.observer.HoldEnd(observe.HoldResult{Name: c.Request.Name, Token: c.Token(), Held: held, Err: err})
	}
}

// record adds an event of a lock to the history.
func (r *reporter) record(c *ledger.Claim, kind, detail string) {
	quiet := c.Unrecorded && (kind == history.Granted || kind == history.Released)
	if r.history.On() && !quiet {
		r.history.Add(c.Event(kind, Clean(detail, MaxReason)))
	}
}
