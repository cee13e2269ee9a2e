package ledger

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/internal/wait"
)

// Grant is one attempt of the client at a name, with what the database has of it: nothing yet, a
// place in the queue, or the lock. It serves its claims one after the other, in the order in which
// they came. The ledger's mutex protects the unexported fields.
type Grant struct {
	Name, ID string         // of the attempt
	In       *store.Session // the session that the database knows the attempt by
	Given    protocol.Grant // by the database; set once, before the first claim has the lock
	Mode     modeBox
	Order    order // of the statements about the lock
	// Guarded is set when a transaction may have guarded the lock: its release waits for the end of
	// the transaction.
	Guarded atomic.Bool
	// Guardable is set when Guard's row of this lock was made.
	Guardable atomic.Bool

	state   GrantState
	joint   bool     // its requests are plain, and others may be added while it has the last place
	members int      // that the database counts, as far as the client knows
	waiting []*Claim // in the order of their tokens, without those that gave up
	present *Claim   // the claim whose turn it is, or was last
	asked   time.Duration
	place   *wait.Waiter
	served  chan struct{} // closed at the end of the service of a joint grant; nil: it has not begun
	growing chan struct{} // closed when the request that extends the place is answered; nil: none is in flight
	split   chan struct{} // closed when the database was told of the split; nil: none is under way
	rest    *Grant        // of the claims that were split off, until it is known whether they have a place
	reason  string        // of an Ask that was passed on: it is for one claim
	tx      any           // of a lent claim: identifies the transaction; nil until that has locked the row
	undone  chan struct{} // closed when nothing is left; nil: it is not being undone
}

// newGrant makes the grant of an attempt that is about to be sent.
func newGrant(in *store.Session, name, id string, waiting ...*Claim) *Grant {
	return &Grant{Name: name, ID: id, In: in, Order: make(order, 1), waiting: waiting}
}

// GrantState is what the database has of an attempt, as far as the client knows.
type GrantState int

// The states of a grant.
const (
	Sent      GrantState = iota // a statement may take the lock or a place, or is about to be sent
	Queued                      // the database has a place
	Granted                     // the database has the lock
	Uncertain                   // the database may have the lock: only a look or a repeated statement tells
	Leaving                     // the release of the lock or the place is sent
	Gone                        // the database has nothing
)

var grantStates = [...]string{"Sent", "Queued", "Granted", "Uncertain", "Leaving", "Gone"}

func (s GrantState) String() string { return grantStates[s] }

// grantEvent happens to a grant.
type grantEvent int

const (
	queue     grantEvent = iota // the database has a place
	give                        // the database has given the lock
	loseTrack                   // UnlockTx, a lease that is over, or a lost answer leaves the outcome open
	restore                     // every UnlockTx failed or was rolled back
	leave                       // no claim is left: the lock or the place is to be released
	vanish                      // the database has nothing any more
)

var grantEvents = [...]string{"queue", "give", "loseTrack", "restore", "leave", "vanish"}

func (e grantEvent) String() string { return grantEvents[e] }

var ofGrants = map[GrantState]map[grantEvent]GrantState{
	Sent:      {queue: Queued, give: Granted, leave: Leaving, vanish: Gone},
	Queued:    {give: Granted, leave: Leaving, vanish: Gone},
	Granted:   {loseTrack: Uncertain, leave: Leaving, vanish: Gone},
	Uncertain: {loseTrack: Uncertain, restore: Granted, leave: Leaving, vanish: Gone},
	Leaving:   {loseTrack: Uncertain, leave: Leaving, vanish: Gone},
	Gone:      {leave: Leaving, vanish: Gone},
}

// can reports whether an event is possible.
func (g *Grant) can(e grantEvent) bool {
	_, possible := ofGrants[g.state][e]
	return possible
}

// move makes every transition of a grant. An event that is impossible changes nothing, and is
// logged as an error. MUST be called with mu locked.
func (l *Ledger) move(g *Grant, e grantEvent) {
	next, possible := ofGrants[g.state][e]
	if !possible {
		l.impossible(g, g.state, e)
		return
	}
	g.state = next
	if next != Gone {
		l.attempts[g.ID] = g
		return
	}
	if l.attempts[g.ID] == g {
		delete(l.attempts, g.ID)
	}
	if c := g.present; c != nil && c.can(finish) { // nobody relies on it
		l.happen(c, finish)
	}
}

// impossible logs a transition that cannot be.
func (l *Ledger) impossible(g *Grant, state, event any) {
	l.config.Log.Error("dblock: a state that cannot be: please report this",
		"name", g.Name, "attempt", g.ID, "state", state, "event", event)
}

// number numbers the claims of a grant that is about to be sent.
func (g *Grant) number() {
	for i, c := range g.waiting {
		c.Grant, c.at = g, i
	}
}

// request returns the request of a grant, as its first claim would make it. Claims that gave up
// keep their tokens. MUST be called with mu locked.
func (g *Grant) request() protocol.Request {
	r := g.waiting[0].Request
	g.members = g.waiting[len(g.waiting)-1].at + 1
	r.Attempt, r.Members = g.ID, g.members
	return r
}

// whole reports whether the database has the place of a grant, or the lock for all of its claims.
// MUST be called with mu locked.
func (g *Grant) whole() bool {
	return g.state == Queued ||
		g.state == Granted && g.split == nil && g.rest == nil && g.Mode.Load().Last == g.Given.Token
}

// Allow notes that the database has given a lock to an attempt that had no place. asked is the
// clock before the statement was sent.
func (l *Ledger) Allow(g *Grant, given protocol.Grant, asked time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allow(g, given, asked)
}

// allow gives the lock to the first claim. It returns false if no claim waits. Claims for which the
// grant has no token request the lock again: a crash of the server may undo what has extended their
// place. MUST be called with mu locked.
func (l *Ledger) allow(g *Grant, given protocol.Grant, asked time.Duration) bool {
	if !g.can(give) {
		return true // the same grant was delivered before, or the attempt was abandoned
	}
	if g.joint {
		l.limit(g, given)
	}
	if len(g.waiting) == 0 {
		return false
	}
	l.move(g, give)
	g.Given, g.asked = given, asked
	m := Mode{First: given.First, Last: given.Token, Units: g.waiting[0].Request.Units, Of: g.waiting[0].Request.Of}
	if g.joint {
		g.served = make(chan struct{})
		l.localQueue(g.In, g.Name).serves(g)
	} else {
		m.First = given.Token
	}
	g.Mode.Store(&m)
	g.serve()
	return true
}

// serve gives the lock to the next claim. MUST be called with mu locked.
func (g *Grant) serve() {
	c := g.waiting[0]
	g.present, g.waiting = c, g.waiting[1:]
	c.token.Store(g.Mode.Load().First + int64(c.at))
	if c.turn != nil {
		c.turn <- nil
	}
}

// dismiss ends the wait of all claims with an error. MUST be called with mu locked.
func (l *Ledger) dismiss(g *Grant, err error) { l.dismissFrom(g, 0, err) }

// dismissFrom ends the wait of the claims from the nth on with an error. MUST be called with mu
// locked.
func (l *Ledger) dismissFrom(g *Grant, nth int, err error) {
	for _, c := range g.waiting[nth:] {
		l.happen(c, finish)
		if c.turn != nil {
			c.turn <- err
		}
	}
	g.waiting = g.waiting[:nth]
}

// limit dismisses the claims for which a grant has no token. MUST be called with mu locked.
func (l *Ledger) limit(g *Grant, given protocol.Grant) {
	n := slices.IndexFunc(g.waiting, func(c *Claim) bool { return !given.Has(given.First + int64(c.at)) })
	if n >= 0 {
		l.dismissFrom(g, n, store.ErrAgain)
	}
}

// withdraw removes a claim whose caller stopped waiting. It returns false if its wait ended
// otherwise in the meantime. MUST be called with mu locked.
func (l *Ledger) withdraw(c *Claim) bool {
	g := c.Grant
	i := slices.Index(g.waiting, c)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	l.happen(c, finish)
	return true
}

// end ends the service of a grant that has no lock any more, or is being undone. Claims behind the
// lock get ErrAgain. Claims that were split off wait at the head of the queue if inQueue is true:
// the database may have them there. Otherwise they get ErrAgain, too. A second call does nothing.
// MUST be called within a call, with mu locked.
func (l *Ledger) end(g *Grant, inQueue bool) {
	if on := l.queues[key{g.In, g.Name}]; on != nil {
		if on.last == g {
			on.last = nil
		}
		if on.serving == g {
			on.serves(nil)
		}
		l.clear(g.In, g.Name)
	}
	l.dismiss(g, store.ErrAgain)
	if g.split == nil { // else splitOff resumes those behind, with the outcome
		l.resume(g, inQueue)
	}
}

// Finish ends a grant of which nothing is in the database any more. inQueue: claims that were split
// off may have a place.
func (l *Ledger) Finish(g *Grant, inQueue bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finish(g, inQueue)
}

// finish is Finish for a caller that has locked mu.
func (l *Ledger) finish(g *Grant, inQueue bool) {
	l.move(g, vanish)
	l.end(g, inQueue)
}

// ReleaseUnanswered notes that the answer to a release is lost: a lock that is gone is no loss
// then, as it is none while the client releases it in the background.
func (l *Ledger) ReleaseUnanswered(g *Grant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.undone == nil && g.can(loseTrack) {
		l.move(g, loseTrack)
	}
}
