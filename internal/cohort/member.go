package cohort

import (
	"context"
	"time"

	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// Member is one request. Once Join has returned it, it is the handle of the lock. A nil Member is
// that of a lock that was granted without waiting: Pass, Leave and Split do nothing.
type Member struct {
	request protocol.Request
	turn    chan error // receives once: nil if the member has the lock, else the error
	cohort  *cohort
	at      int // the member's number in the cohort, from 0
	token   int64
}

// plain reports whether a request may share a place with others: it wants the whole name without
// any option, and its owner holds nothing that other owners could wait for. A candidate has a place
// of its own, which is known by its attempt.
func plain(r *protocol.Request, holding bool) bool {
	return !holding && r.Units == 0 && r.Lease == 0 && r.MinHold == 0 && r.Metadata == "" && !r.Candidate
}

// Attempt returns the attempt of the cohort.
func (m *Member) Attempt() string { return m.cohort.attempt }

// Token returns the token of the member.
func (m *Member) Token() int64 { return m.token }

// Grant returns the grant of the cohort, and the clock before the statement that returned it was
// sent.
func (m *Member) Grant() (g protocol.Grant, asked time.Duration) {
	return m.cohort.grant, m.cohort.asked
}

// InOpenCohort reports whether the lock was granted to a cohort that several requests could join:
// the database may show another owner as its holder.
func (m *Member) InOpenCohort() bool { return m != nil && m.cohort.open }

// Pass gives the lock to the next member. It returns false if none follows: then the caller
// releases the lock in the database, and calls Leave. Pass waits for the end of a Split, after
// which the database shows the present member as the only holder. If ctx ends before that, the
// cohort ends, and the caller has to release the lock.
func (m *Member) Pass(ctx context.Context) (passed bool, err error) {
	if m == nil {
		return false, nil
	}
	for {
		passed, wait := m.cohort.tryPass()
		if wait == nil {
			return passed, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			m.cohort.end()
			return false, context.Cause(ctx)
		}
	}
}

// Leave ends the cohort of a member that has released or lost the lock. Members behind a lost lock
// get ErrAgain. Members that were split off wait at the head of the queue if inQueue is true: the
// database may have them there. Otherwise they get ErrAgain. A second call does nothing.
func (m *Member) Leave(inQueue bool) {
	if m == nil {
		return
	}
	c := m.cohort
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	c.leave()
	c.resumeRest(inQueue)
}

// Split makes the member that has the lock its only holder in the database, with its own owner. It
// precedes every statement that shows the member to other clients, or that changes the lock of this
// member alone. tell runs in the background until it knows the outcome, and reports whether the
// members behind may be in the queue. The channel is closed after that; nil: the member is the only
// holder already, or has the lock no more.
func (m *Member) Split(tell func(protocol.Detachment) (inQueue bool)) <-chan struct{} {
	if m == nil {
		return nil
	}
	c := m.cohort
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	if c.present != m {
		return nil // the detachment would take the lock from the present member
	}
	if c.move(split) {
		c.split = make(chan struct{})
		d := c.detachment()
		c.queues.config.Calls.Go(func() { c.settle(tell(d)) })
	}
	if c.state != splitting {
		return nil
	}
	return c.split
}

// SplitTx returns the detachment of a member for a transaction that releases the lock. The members
// behind it are parked until Leave says whether the transaction was committed. The zero Detachment:
// the member is the only holder.
func (m *Member) SplitTx() protocol.Detachment {
	if m == nil {
		return protocol.Detachment{}
	}
	c := m.cohort
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	if c.state != serving && c.state != splitting {
		return protocol.Detachment{}
	}
	return c.detachment()
}

// tryPass is Pass without waiting. During a split it returns the channel to wait for.
func (c *cohort) tryPass() (passed bool, split <-chan struct{}) {
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	if c.state == splitting {
		return false, c.split
	}
	return c.pass(c.queues.config.Passing), nil
}

// pass gives the lock to the next member, and calls note before that. MUST be called with mu
// locked.
func (c *cohort) pass(note func(attempt string)) bool {
	if len(c.waiting) == 0 || !c.move(pass) {
		c.move(release)
		return false
	}
	note(c.attempt)
	c.serve()
	return true
}

// end is leave for a caller that has not locked mu.
func (c *cohort) end() {
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	c.leave()
}

// leave ends a cohort that has the lock. MUST be called with mu locked.
func (c *cohort) leave() {
	if c.move(leave) && c.open {
		if c.queues.serving[c.key] == c {
			delete(c.queues.serving, c.key)
		}
		close(c.served)
	}
	c.dismiss(store.ErrAgain)
}

// detachment returns the Detachment of the present member, and parks the members behind it, once.
// MUST be called with mu locked.
func (c *cohort) detachment() protocol.Detachment {
	if c.rest == nil && len(c.waiting) > 0 {
		c.rest = &cohort{
			key: c.key, queues: c.queues, open: true, state: parked, attempt: deadlock.NewAttempt(""),
			waiting: c.waiting,
		}
		c.rest.number()
		c.waiting = nil
		c.queues.config.Register(c.name, c.rest.attempt)
		c.rest.place = c.in.Waiters().Add(c.name, c.rest.attempt, c.rest.answered)
	}
	d := protocol.Detachment{Token: c.present.token, Host: c.present.request.Host, Thread: c.present.request.Thread}
	if c.rest != nil && len(c.rest.waiting) > 0 {
		d.Behind = c.rest.request()
	}
	return d
}

// settle ends a split.
func (c *cohort) settle(inQueue bool) {
	c.queues.mu.Lock()
	defer c.queues.mu.Unlock()
	c.resumeRest(inQueue)
	c.move(settle)
	close(c.split)
}

// resumeRest lets the parked members wait in the queue, or request the lock again. MUST be called
// with mu locked.
func (c *cohort) resumeRest(inQueue bool) {
	rest := c.rest
	c.rest = nil
	switch {
	case rest == nil:
	case inQueue:
		rest.joined(false)
	default:
		rest.fail(store.ErrAgain, store.Unsure)
	}
}
