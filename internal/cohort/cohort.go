package cohort

import (
	"slices"
	"time"

	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/wait"
)

// maxMembers limits the members of a cohort.
const maxMembers = 256

// cohort is a group of requests that share one place, one attempt and one grant. The mutex of its
// Queues protects it.
type cohort struct {
	key
	queues  *Queues
	open    bool // its requests are plain, and others may join it while it gathers
	state   state
	attempt string
	place   *wait.Waiter
	members int       // also those that had the lock or gave up
	waiting []*Member // in the order of their tokens, without those that gave up
	present *Member   // the member that has the lock, or had it last

	grant  protocol.Grant
	asked  time.Duration // by the clock, before the statement that returned the grant was sent
	served chan struct{} // closed when the cohort has the lock no more; nil: it is not open
	split  chan struct{} // closed when a split has ended; nil: none has begun
	rest   *cohort       // the parked members behind the present one; nil: there are none
}

// number ends the gathering: it counts the members, and numbers them.
func (c *cohort) number() {
	c.members = len(c.waiting)
	for i, m := range c.waiting {
		m.cohort, m.at = c, i
	}
}

// request returns the request of the cohort, as its first member would make it. Members that gave
// up keep their tokens. MUST be called with mu locked.
func (c *cohort) request() protocol.Request {
	r := c.waiting[0].request
	r.Attempt, r.Members = c.attempt, c.waiting[len(c.waiting)-1].at+1
	return r
}

// begin gives the granted lock to the first member. It returns false if no member waits. MUST be
// called with mu locked.
func (c *cohort) begin(g protocol.Grant, asked time.Duration) bool {
	if len(c.waiting) == 0 {
		return false
	}
	if !c.move(grant) {
		return true // the same grant was delivered before, or its attempt was abandoned
	}
	c.grant, c.asked = g, asked
	if c.members == 1 {
		c.move(settle)
	}
	if c.open {
		c.served = make(chan struct{})
		c.queues.serving[c.key] = c
	}
	c.serve()
	return true
}

// serve gives the lock to the next member. MUST be called with mu locked.
func (c *cohort) serve() {
	m := c.waiting[0]
	c.waiting = c.waiting[1:]
	c.present, m.token = m, c.grant.Token
	if c.open {
		m.token = c.grant.First + int64(m.at)
	}
	m.turn <- nil
}

// dismiss ends the wait of all members with an error. MUST be called with mu locked.
func (c *cohort) dismiss(err error) {
	for _, m := range c.waiting {
		m.turn <- err
	}
	c.waiting = nil
}

// remove removes a member whose caller stopped waiting. It returns false if the wait of the member
// ended otherwise in the meantime. MUST be called with mu locked.
func (c *cohort) remove(m *Member) bool {
	i := slices.Index(c.waiting, m)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	return i >= 0
}

// joined records that the database has a place for the cohort. recheck: a fixed lease in front of
// the place may have expired, which is not notified, so that the name is read soon. MUST be called
// with mu locked.
func (c *cohort) joined(recheck bool) {
	switch {
	case len(c.waiting) == 0:
		c.vacate()
	case c.move(queue):
		c.in.Waiters().Queued(c.place)
		if recheck {
			c.in.Waiters().Recheck(c.name)
		}
	}
}

// vacate gives up the place of a cohort without members. MUST be called with mu locked.
func (c *cohort) vacate() {
	if c.move(vacate) {
		c.in.Waiters().Remove(c.place)
		c.abandon(store.Something)
	}
}

// fail ends a cohort without the lock, with the error for all of its members. left is the residue
// of its statement. MUST be called with mu locked.
func (c *cohort) fail(err error, left store.Residue) {
	if !c.move(fail) {
		return
	}
	c.in.Waiters().Remove(c.place)
	c.dismiss(err)
	if left == store.Nothing {
		c.queues.config.Finish(c.attempt)
	} else {
		c.abandon(left)
	}
}

// abandon releases the lock or the place of the attempt.
func (c *cohort) abandon(left store.Residue) { c.queues.config.Abandon(c.in, c.name, c.attempt, left) }
