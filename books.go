package dblock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
)

var (
	errLeaseOver    = errors.New("its fixed lease is over")
	errGrantedAgain = errors.New("the database granted the name again")
)

// books are what a client believes to hold. The client's mutex protects them.
type books struct {
	holds  map[string]*hold  // by attempt
	whole  map[string]*hold  // by name: the holder of all of it
	owners map[gateKey]*hold // what an owner enters again; permits are not entered

	permits map[*hold]bool // a set
}

func newBooks() books {
	return books{holds: map[string]*hold{}, whole: map[string]*hold{}, owners: map[gateKey]*hold{}, permits: map[*hold]bool{}}
}

// enter puts a hold on the books, and returns another that had the whole name until then as far as
// was known.
func (b books) enter(h *hold) (before *hold) {
	b.holds[h.attempt] = h
	if before = b.whole[h.name]; before == h || h.native != nil || before != nil && before.yielding && h.standing.Load().shared() {
		before = nil
	}
	b.sort(h)
	return before
}

// sort files a hold under what it is now.
func (b books) sort(h *hold) {
	s := h.standing.Load()
	if !s.shared() {
		b.whole[h.name] = h
	} else if b.whole[h.name] == h {
		delete(b.whole, h.name)
	}
	if s.permit() {
		b.permits[h] = true
		return
	}
	delete(b.permits, h)
	b.owners[gateKey{h.name, h.owner}] = h
}

// units are what an owner has of a name by permits that ctx is under: they cannot come back before
// ctx is done with.
func (b books) units(ctx context.Context, name string, o owner) (n int) {
	for h := range b.permits {
		if h.name == name && h.owner == o && (ctx.Value(h) != nil || h.all != nil && ctx.Value(h.all) != nil) {
			n += h.standing.Load().units
		}
	}
	return n
}

// drop takes a hold off the books; false if it was off already.
func (b books) drop(h *hold) bool {
	if b.holds[h.attempt] != h {
		return false
	}
	delete(b.holds, h.attempt)
	delete(b.permits, h)
	if b.whole[h.name] == h {
		delete(b.whole, h.name)
	}
	if gate := (gateKey{h.name, h.owner}); b.owners[gate] == h {
		delete(b.owners, gate)
	}
	return true
}

// hold registers a grant, unless it came too late to be relied upon.
func (c *Client[TX]) hold(ctx context.Context, l *life, r driver.Request, o owner, g driver.Grant, asked time.Duration) (*hold, bool) {
	h := &hold{life: l, name: r.Name, attempt: r.Attempt, owner: o, contended: g.Contended, fixed: g.Lease != 0, count: 1, metadata: r.Metadata, asked: make(chan string, 1)}
	h.standing.Store(&standing{g.Token, r.Units, r.Of})
	h.ctx, h.cancel = context.WithCancelCause(h.under(context.WithoutCancel(ctx), c))
	now := c.config.clock()
	h.end = leaseEnd(g.Lease, asked, now)

	c.mu.Lock()
	newer := c.books.whole[r.Name] // it was taken away, and granted again, before the answer was here
	if c.closed || !l.Alive() || (h.fixed && h.end <= now) || newer != nil && r.Units == 0 && newer.standing.Load().token > g.Token {
		c.mu.Unlock()
		return nil, false
	}
	// With mu locked, so that neither can end the hold before it is on the books.
	unwatchSession := context.AfterFunc(l.Context(), func() { c.lose(h, context.Cause(l.Context())) })
	h.unwatch = func() { unwatchSession() }
	if h.fixed {
		unwatchLease := c.config.clock.Alarm(h.end, func() { c.lose(h, errLeaseOver) })
		h.unwatch = func() { unwatchSession(); unwatchLease() }
	}
	if g.Contended {
		c.note(r.Name)
	} else {
		delete(c.contended, r.Name)
	}
	before := c.books.enter(h)
	if before != nil {
		c.books.drop(before)
	}
	c.mu.Unlock()
	if before != nil { // the database took it from that one, and the client has not heard of it yet
		c.end(before, before.gone(errGrantedAgain))
	}
	c.record(h, granted, "")
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

// note remembers that others want a name. MUST be called with mu locked.
func (c *Client[TX]) note(name string) {
	if len(c.contended) >= 4096 { // a hint, and no more: forgetting all of it costs a statement here and there
		clear(c.contended)
	}
	c.contended[name] = true
}

// drop takes a hold off the books and ends its context; false if it was off already.
func (c *Client[TX]) drop(h *hold, cause error) bool {
	c.mu.Lock()
	held := c.books.drop(h)
	c.mu.Unlock()
	if held {
		c.end(h, cause)
	}
	return held
}

// end ends the context of a hold that is off the books.
func (c *Client[TX]) end(h *hold, cause error) {
	h.unwatch()
	h.cancel(cause)
	if h.native == nil && (errors.Is(cause, ErrLost) || h.leaving.possible()) {
		c.disown(h)
	}
	if errors.Is(cause, ErrLost) {
		c.record(h, wasLost, fmt.Sprint(cause))
		c.config.log.Warn("dblock: lock lost", "name", h.name, "token", h.standing.Load().token, "because", cause)
	}
}

// disown forgets the attempt of a hold that is lost, so that what is left of it in the database is
// given back. Not where it had a fixed lease: a transaction that it guards may still be open, and
// only who takes it over looks for that.
func (c *Client[TX]) disown(h *hold) {
	if !h.fixed || !h.life.Alive() {
		c.unclaim(h.attempt)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.overdue[h.attempt] = true
}
