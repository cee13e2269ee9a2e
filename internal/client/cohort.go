package client

import (
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/wait"
)

// maxMembers is how many members a cohort has at most.
const maxMembers = 256

// place is a name that a session waits for.
type place struct{ session, name string }

func (m *member) place() place { return place{m.request.Session, m.request.Name} }

// cohorts are the requests of a client's sessions that join queues together (lock cohorting: Dice,
// Marathe and Shavit 2012). For each name one statement at a time joins its queue; what comes
// meanwhile goes with the next. So the members of a cohort came before whatever stands behind its
// place. together.go sends what is decided here.
type cohorts struct {
	mu      sync.Mutex          // protects what follows, and every cohort and member
	asking  map[place][]*member // by name with a statement under way, those who go with the next
	serving map[place]*cohort   // by name, that which has the lock
}

// cohort is a number of requests that share one place, one attempt and one grant. Its members get
// the lock one after the other in the order in which they came, in memory, each with a token of its
// own.
type cohort struct {
	attempt   *attempt
	at        place
	waiting   []*member // in the order of their tokens; those who gave up are not among them
	queued    bool      // it has a place in the queue, or had
	grant     driver.Grant
	present   int64         // the token of the member that has the lock; 0: none has it any more
	asked     time.Duration // by the clock, before the statement was sent that told of the grant
	over      chan struct{} // closed when all have given up what it waits for
	served    chan struct{} // closed when it has the lock no more
	alone     bool          // the database knows the present member as the only holder
	detaching chan struct{} // closed when that is so, or the lock is lost; nil: nobody has asked for it
	rest      *cohort       // the members behind one that is being detached
	waiter    *wait.Waiter  // of rest
}

// member is one request.
type member struct {
	request driver.Request
	turn    chan turn // receives once
	cohort  *cohort   // nil: its statement is not sent yet
	at      int       // its number in the cohort, from 0
}

// turn is what a member waits for: the lock, or why it gets nothing.
type turn struct {
	cohort *cohort
	grant  driver.Grant // of the cohort
	asked  time.Duration
	token  int64 // of the member
	err    error
}

func newCohorts() *cohorts {
	return &cohorts{asking: map[place][]*member{}, serving: map[place]*cohort{}}
}

// add adds a request to those that go with the next statement; first: none is under way, and the
// caller has to send it.
func (x *cohorts) add(r driver.Request) (m *member, first bool) {
	m = &member{request: r, turn: make(chan turn, 1)}
	x.mu.Lock()
	defer x.mu.Unlock()
	at := m.place()
	others, busy := x.asking[at]
	x.asking[at] = append(others, m)
	return m, !busy
}

// next makes a cohort of those who have come for a name, and the request that the database gets;
// nil: there is nobody. make makes its attempt.
func (x *cohorts) next(at place, make func() *attempt) (*cohort, driver.Request) {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.asking[at]
	if len(all) == 0 {
		delete(x.asking, at)
		return nil, driver.Request{}
	}
	n := min(len(all), maxMembers)
	x.asking[at] = slices.Clone(all[n:])
	c := newCohort(make(), all[:n])
	return c, c.request()
}

func newCohort(a *attempt, members []*member) *cohort {
	c := &cohort{attempt: a, at: members[0].place(), waiting: slices.Clone(members), over: make(chan struct{}), served: make(chan struct{}), alone: len(members) == 1}
	for i, m := range members {
		m.cohort, m.at = c, i
	}
	return c
}

// request is the cohort's, as its first member would make it. Those who left keep their tokens.
// MUST be called with mu locked.
func (c *cohort) request() driver.Request {
	r := c.waiting[0].request
	r.Attempt, r.Members = c.attempt.id, c.waiting[len(c.waiting)-1].at+1
	return r
}

// queue notes that a cohort has a place; false: nobody waits there any more.
func (x *cohorts) queue(c *cohort) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.queued = true
	return len(c.waiting) > 0
}

// begin gives the lock to the first member; false: none waits any more.
func (x *cohorts) begin(c *cohort, grant driver.Grant, asked time.Duration) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.grant, c.asked = grant, asked
	if !c.serve() {
		return false
	}
	x.serving[c.at] = c
	return true
}

// end notes that a cohort has the lock no more. It is safe to repeat.
func (x *cohorts) end(c *cohort) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.present = 0
	if x.serving[c.at] == c {
		delete(x.serving, c.at)
		close(c.served)
	}
}

// served is closed when the cohort of this session that has a name has it no more; nil: none has.
func (x *cohorts) served(at place) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.serving[at]; c != nil {
		return c.served
	}
	return nil
}

// pass gives the lock to the next member, with what must be noted before. Where none waits the
// database has to be told, and nobody is detached any more. While the present member is being
// detached, whoever passes on waits for that, and comes again.
func (x *cohorts) pass(c *cohort, note func()) (passed bool, wait <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case c.detaching != nil && !c.alone:
		return false, c.detaching
	case len(c.waiting) == 0:
		c.present = 0
		return false, nil
	}
	note()
	return c.serve(), nil
}

// serve MUST be called with mu locked.
func (c *cohort) serve() bool {
	if len(c.waiting) == 0 {
		return false
	}
	m := c.waiting[0]
	c.waiting = c.waiting[1:]
	c.present = c.grant.First + int64(m.at)
	m.turn <- turn{cohort: c, grant: c.grant, asked: c.asked, token: c.present}
	return true
}

// busy reports whether a cohort of this session has a name, or asks for it.
func (x *cohorts) busy(at place) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, asking := x.asking[at]
	return asking || x.serving[at] != nil
}

// dismiss tells those who wait why they get nothing.
func (x *cohorts) dismiss(c *cohort, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range c.waiting {
		m.turn <- turn{err: err}
	}
	c.waiting = nil
}

// dismissFirst tells the member that a cohort's request was made for why it gets nothing.
func (x *cohorts) dismissFirst(c *cohort, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(c.waiting) > 0 && c.waiting[0].at == 0 {
		c.waiting[0].turn <- turn{err: err}
		c.waiting = c.waiting[1:]
	}
}

// leave takes out a member that waits no longer. left: it has not got its turn, which it takes no
// more. vacant: with it all have left the place in the queue.
func (x *cohorts) leave(m *member) (left, vacant bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m.cohort == nil {
		at := m.place()
		if i := slices.Index(x.asking[at], m); i >= 0 {
			x.asking[at] = slices.Delete(x.asking[at], i, i+1)
		}
		return true, false
	}
	c := m.cohort
	i := slices.Index(c.waiting, m)
	if i < 0 {
		return false, false
	}
	c.waiting = slices.Delete(c.waiting, i, i+1)
	if len(c.waiting) > 0 || !c.queued || c.grant.Token != 0 {
		return true, false
	}
	close(c.over)
	return true, true
}

// queued reports whether a member has a place in the queue.
func (x *cohorts) queued(m *member) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return m.cohort != nil && m.cohort.queued
}

// split takes the members behind the present one out of a cohort, with an attempt and a place for
// them, which it makes where there are some. It is safe to repeat. rest is the request of those
// that are left: Members 0, none. MUST be called with mu locked.
func (c *cohort) split(make func() *attempt, place func(attempt string) *wait.Waiter) (rest driver.Request) {
	if c.rest == nil && len(c.waiting) > 0 {
		c.rest = newCohort(make(), c.waiting)
		c.waiting, c.waiter = nil, place(c.rest.attempt.id)
	}
	if c.rest != nil && len(c.rest.waiting) > 0 {
		rest = c.rest.request()
	}
	return rest
}

// resume returns the members that were behind a detached one, and their place; nil: there were
// none.
func (x *cohorts) resume(c *cohort) (*cohort, *wait.Waiter) {
	x.mu.Lock()
	defer x.mu.Unlock()
	rest, waiter := c.rest, c.waiter
	c.rest, c.waiter = nil, nil
	return rest, waiter
}

// settled notes that a cohort has no other member than the present one any more.
func (x *cohorts) settled(c *cohort) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.alone = true
	close(c.detaching)
}
