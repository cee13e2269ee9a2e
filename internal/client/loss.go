package client

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/cohort"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/store"
)

// lose ends a hold that was not unlocked.
func (c *Client) lose(h *hold, reason error) { c.loseAll(reason, h) }

// expire ends a hold whose fixed lease is over. The log says nothing of an end that was asked for.
func (c *Client) expire(h *hold) { c.forfeit(errLeaseOver, h) }

// forfeit ends holds that were not unlocked, and returns those that are lost with that. Their
// contexts end one directly after the other: nothing else may stand between a deadline and the last
// context that must end at it.
func (c *Client) forfeit(reason error, holds ...*hold) (lost []*hold) {
	hows := make(map[*hold]ending, len(holds))
	for _, h := range holds {
		if how, taken := c.registry.forfeit(h, reason); taken {
			c.cut(h, how)
			hows[h] = how
		}
	}
	for h, how := range hows {
		if c.conclude(h, how) {
			lost = append(lost, h)
		}
	}
	return lost
}

// cut ends the context of a hold that was taken out of what is relied upon. One that UnlockTx has
// released keeps its context for a TTL, or until Unlock: the Commit that released it may be reading
// its answer with that.
func (c *Client) cut(h *hold, how ending) {
	if how.event == commit {
		c.linger(h, how.cause)
	} else {
		c.end(h, how.cause)
	}
}

// conclude does what follows when a hold was cut, and reports whether it is lost.
func (c *Client) conclude(h *hold, how ending) (isLost bool) {
	if how.event == commit {
		c.history.record(h, KindReleased, "")
	} else {
		c.recordLoss(h, how.cause)
	}
	c.tellEnded(h, how.cause)
	c.failRest(h)
	return how.event != commit
}

// linger ends a hold that UnlockTx has released after a TTL, or with the client, unless it is
// unlocked before.
func (c *Client) linger(h *hold, cause error) {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	if h.state != ReleasedTx {
		return
	}
	if h.unwatch != nil {
		h.unwatch()
	}
	leave := func() {
		if c.registry.take(h, finish) {
			c.end(h, cause)
		}
	}
	over := c.config.Clock.Alarm(c.config.Clock.Now()+c.config.TTL, leave)
	closed := context.AfterFunc(c.store.Background, leave)
	h.unwatch = func() { over(); closed() }
}

// failRest has the members behind a hold that was lost request the lock again, unless the database
// may have them in the queue.
func (c *Client) failRest(h *hold) {
	if h.member == nil || c.store.Begin() != nil {
		return // Close ends the waiting
	}
	defer c.store.Done()
	h.member.Leave(true)
}

// maxLossLines is how many locks the log names of those that are lost together.
const maxLossLines = 10

func (c *Client) logLoss(h *hold) {
	c.config.Log.Warn("dblock: lock lost", "name", h.name, "token", h.mode.Load().token, "because", context.Cause(h.ctx))
}

// loseSession ends what a session had that is over. What is not in the registry yet will not be
// added.
func (c *Client) loseSession(s *store.Session) {
	c.loseAll(context.Cause(s.Context()), slices.Collect(maps.Values(c.registry.heldBy(s)))...)
}

// loseAll ends holds that were not unlocked, and says so in the log.
func (c *Client) loseAll(reason error, holds ...*hold) {
	lost := c.forfeit(reason, holds...)
	for _, h := range lost[:min(len(lost), maxLossLines)] {
		c.logLoss(h)
	}
	if more := len(lost) - maxLossLines; more > 0 {
		c.config.Log.Warn("dblock: more locks lost", "session", lost[0].in.ID, "locks", more)
	}
}

// unusable is why nothing is done under a hold that is not relied upon.
func (c *Client) unusable(h *hold) error {
	switch c.registry.state(h.attempt) {
	case ReleasingTx, ReleasedTx:
		return errReleasedTx
	}
	<-h.ctx.Done() // whatever took it out of the registry ends it
	return h.over()
}

// end ends the context of a hold that is not relied upon any more.
func (c *Client) end(h *hold, cause error) {
	h.cancel(cause)
	if h.unwatch != nil {
		h.unwatch()
	}
	h.progress.Load().end()
}

func (c *Client) recordLoss(h *hold, cause error) { c.history.record(h, KindLost, fmt.Sprint(cause)) }

// receipt is what an attempt got.
type receipt struct {
	store.Answer
	member *cohort.Member // that waited for it; nil: it was granted without waiting
	ended  bool           // package cohort has ended the attempt
}

// rely makes a hold of what an attempt got, unless that came too late. A fixed lease is counted
// from the time when it was asked for.
func (c *Client) rely(ctx context.Context, s *store.Session, k *attempt, r *driver.Request, o Owner, got *receipt) (*hold, bool) {
	h := &hold{
		attempt: k, in: s, owner: o, member: got.member, contended: got.Grant.Contended, fixed: got.Grant.Lease != 0, entries: 1,
		metadata: r.Metadata, lease: r.Lease, minHold: r.MinHold, began: c.config.Clock.Now(),
	}
	m := mode{token: got.Grant.Token, last: got.Grant.Token, units: r.Units, of: r.Of}
	if got.member != nil {
		m.token = got.member.Token()
	}
	h.mode.Store(&m)
	h.ctx, h.cancel = context.WithCancelCause(h.under(context.WithoutCancel(ctx), c.owners))
	now := h.began
	end := leaseEnd(got.Grant.Lease, got.Asked, now)
	before, how, added := c.registry.add(h, func() bool {
		if !s.Alive() || h.fixed && end <= now {
			return false
		}
		if h.fixed {
			c.watchLease(h, end)
		}
		return true
	})
	if !added {
		return nil, false
	}
	if before != nil { // the client had not heard of it yet
		if c.cut(before, how); c.conclude(before, how) {
			c.logLoss(before)
		}
	}
	c.history.record(h, KindGranted, "")
	return h, true
}

// watchLease has a hold end with its fixed lease, and not with the one before. MUST be called with
// the registry's mutex locked.
func (c *Client) watchLease(h *hold, end time.Duration) {
	if h.unwatch != nil {
		h.unwatch()
	}
	h.end = end
	stop := c.config.Clock.Alarm(end, func() {
		if c.registry.leaseEnd(h) <= c.config.Clock.Now() { // it was not stopped too late
			c.expire(h)
		}
	})
	h.unwatch = func() { stop() }
}

// prolong moves the end of a hold's fixed lease, and never back. It reports false where the hold is
// over, or its lease here, also if nobody has noticed.
func (c *Client) prolong(h *hold, end time.Duration) bool {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	if c.registry.holds[h.id] != h || h.end <= c.config.Clock.Now() {
		return false
	}
	if end > h.end {
		c.watchLease(h, end)
	}
	return true
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
