package ledger

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/deadlock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/outage"
	"github.com/dblock-go/dblock/internal/store"
)

// maxContended bounds the hints about names that others wait for. A forgotten hint costs one
// statement.
const maxContended = 4096

// Config configures a ledger.
type Config struct {
	Host   string
	TTL    time.Duration // also how long the context of a lock stays open after UnlockTx has released it
	Clock  clock.Clock
	Log    *slog.Logger
	Store  *store.Store
	Client Client
}

// Client is the client as its ledger calls it.
type Client interface {
	// Ended follows up the end of a claim without Unlock. It is called after the contexts of all
	// claims that end together.
	Ended(c *Claim, e Ending)
	// Breakers returns who took the locks of claims by Break, and why, where it is known. It delays
	// the ends of their contexts, and so takes a moment at most.
	Breakers(ctx context.Context, claims []*Claim) map[*Claim]error
	// GaveUp makes the error of a request whose context ended. queued: it had a place. began: when
	// the request did, by the client's clock.
	GaveUp(in *store.Session, name string, queued bool, began time.Duration, cause error) error
	// Deadlocked makes the error of a request that must give up.
	Deadlocked(cycle deadlock.Cycle) error
}

// Ledger keeps the grants and claims of a client.
type Ledger struct {
	Owners *Owners
	config Config

	splitting, givingBack *outage.Report

	undoing    chan struct{} // has an element for each attempt that is being undone, parallelism at most
	waiting    atomic.Int64  // claims that are in a queue, or gather
	candidates atomic.Int64  // likewise, of elections

	mu        sync.Mutex        // protects the fields below, and every grant and claim
	closed    bool              // nothing is held that was not
	attempts  map[string]*Grant // by id; those that are gone are not in it
	names     map[string]*name
	queues    map[key]*localQueue
	contended int // names
}

// name is the entry of a name in the ledger.
type name struct {
	claims    []*Claim // that stand
	contended bool     // others waited for the name when it was last read
	entering  map[Owner]entry
}

// New makes the ledger of a client.
func New(config Config) *Ledger {
	l := &Ledger{
		config:     config,
		splitting:  outage.New(config.Log, "dblock: showing the holder of a lock"),
		givingBack: outage.New(config.Log, "dblock: releasing in the background"),
		undoing:    make(chan struct{}, parallelism),
		attempts:   map[string]*Grant{}, names: map[string]*name{}, queues: map[key]*localQueue{},
	}
	l.Owners = &Owners{config.Host, l}
	return l
}

// of returns the entry of a name, and makes it if there is none. trim MUST follow where the entry
// may be empty. MUST be called with mu locked.
func (l *Ledger) of(key string) *name {
	n := l.names[key]
	if n == nil {
		n = &name{}
		l.names[key] = n
	}
	return n
}

// trim forgets a name whose entry is empty. MUST be called with mu locked.
func (l *Ledger) trim(key string) {
	if n := l.names[key]; n != nil && len(n.claims) == 0 && !n.contended && len(n.entering) == 0 {
		delete(l.names, key)
	}
}

// held yields the claims of a name that are held. MUST be called with mu locked.
func (l *Ledger) held(key string, f func(c *Claim) (more bool)) {
	if n := l.names[key]; n != nil {
		for _, c := range n.claims {
			if c.relies() && !f(c) {
				return
			}
		}
	}
}

// StateOf returns the state of a claim.
func (l *Ledger) StateOf(c *Claim) ClaimState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.state
}

// Knows reports whether an attempt is in the table: the client may hold or be granted its lock.
func (l *Ledger) Knows(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts[id] != nil
}

// Hold lets a claim whose turn has come have the lock, unless the grant came too late. A fixed
// lease counts from the time of its request.
func (l *Ledger) Hold(ctx context.Context, c *Claim) bool {
	c.Began = l.config.Clock.Now()
	l.open(ctx, c)
	if c.Fixed() {
		c.lease = clock.NewDeadline(l.config.Clock, LeaseEnd(c.Grant.Given.Lease, c.Grant.asked, c.Began))
	}
	before, how, held := l.enter(c, func() bool {
		if !c.Grant.In.Alive() || c.Fixed() && c.Expiry() <= c.Began {
			return false
		}
		if c.Fixed() {
			l.watchLease(c)
		}
		return true
	})
	if before != nil { // the client did not know that before had ended
		l.cut(before, how)
		l.follow(before, how)
		if !how.Released() {
			l.LogLoss(before)
		}
	}
	return held
}

// enter lets a claim have the lock, unless it came too late to be relied upon: the client is
// closed, a later grant of the name is held already, or admit, which is called with mu locked,
// refuses. enter also returns another claim that had the whole name until then, as far as the
// client knew, and how that one ends.
func (l *Ledger) enter(c *Claim, admit func() bool) (before *Claim, how Ending, held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := c.Grant
	m := g.Mode.Load()
	before, was := l.whole(g.Name, Held, Pledged)
	late := before != nil && !m.Shared() && was.Last > m.Last
	if l.closed || g.state != Granted || g.present != c || !c.can(hold) || late || !admit() {
		return nil, Ending{}, false
	}
	l.setContended(g.Name, g.Given.Contended)
	if m.Last == 0 || before != nil && was.Knowledge == Yielding && m.Shared() {
		before = nil // without tokens the client cannot tell which of the two is later
	}
	l.happen(c, hold)
	if before != nil { // the database took the name from that claim
		how = before.ending(errGrantedAgain)
		l.happen(before, how.event)
	}
	return before, how, true
}

// whole returns the claim in one of the states that has all of a name, with the mode in which it
// has it; nil: there is none. The caller MUST NOT load the mode again: mu does not protect it, and
// after a Downgrade that has ended meanwhile it is neither the whole name nor Yielding. MUST be
// called with mu locked.
func (l *Ledger) whole(key string, states ...ClaimState) (*Claim, *Mode) {
	n := l.names[key]
	if n == nil {
		return nil, nil
	}
	for _, s := range states {
		for _, c := range n.claims {
			if m := c.Grant.Mode.Load(); c.state == s && !m.Shared() {
				return c, m
			}
		}
	}
	return nil, nil
}

// Relies reports whether the caller of a claim relies on its lock.
func (l *Ledger) Relies(c *Claim) bool { return l.StateOf(c) == Held }

// HeldBy returns the claim that is held by an attempt; nil: none.
func (l *Ledger) HeldBy(attempt string) *Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.heldBy(attempt)
}

// heldBy is HeldBy for a caller that has locked mu.
func (l *Ledger) heldBy(attempt string) *Claim {
	if g := l.attempts[attempt]; g != nil && g.present != nil && g.present.relies() {
		return g.present
	}
	return nil
}

// Owned returns the claim of a name that an owner would enter again; nil: there is none.
func (l *Ledger) Owned(name string, o Owner) (owned *Claim) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held(name, func(c *Claim) bool {
		if c.Owner == o && !c.Grant.Mode.Load().permit() {
			owned = c
		}
		return owned == nil
	})
	return owned
}

// Units returns the number of permits of a name that an owner holds by locks that enclose ctx, and
// of how many they are. These permits are not released before the work under ctx ends.
func (l *Ledger) Units(ctx context.Context, name string, o Owner) (n, of int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held(name, func(c *Claim) bool {
		if m := c.Grant.Mode.Load(); m.permit() && c.Owner == o && c.encloses(ctx) {
			n, of = n+m.Units, m.Of
		}
		return true
	})
	return n, of
}

// enclosing returns the claims of a name whose contexts enclose ctx.
func (l *Ledger) enclosing(ctx context.Context, name string) (all []Enclosing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held(name, func(c *Claim) bool {
		if g := c.Grant; c.encloses(ctx) && c.ctx.Err() == nil && g.In.Over() == nil {
			m := g.Mode.Load()
			all = append(all, Enclosing{c.Owner, g.In.ID, m.Units, m.Of})
		}
		return true
	})
	return all
}

// Close keeps anything from being held that is not, and returns the claims that stand.
func (l *Ledger) Close() []*Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.all(func(*Claim) bool { return true })
}

// all returns the claims that stand and that satisfy want. MUST be called with mu locked.
func (l *Ledger) all(want func(c *Claim) bool) (all []*Claim) {
	for _, n := range l.names {
		for _, c := range n.claims {
			if want(c) {
				all = append(all, c)
			}
		}
	}
	return all
}

// Of returns the claims of a session that stand, by attempt.
func (l *Ledger) Of(s *store.Session) map[string]*Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := map[string]*Claim{}
	for _, c := range l.all(func(c *Claim) bool { return c.Grant.In == s }) {
		of[c.Grant.ID] = c
	}
	return of
}

// Holding reports whether the client has a lock that others could want or take.
func (l *Ledger) Holding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.attempts {
		if g.present != nil && g.present.stands() || g.overdue() {
			return true
		}
	}
	return false
}

// Empty reports whether the client holds nothing, requests nothing, and undoes nothing.
func (l *Ledger) Empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.attempts) == 0
}

// Count returns the number of claims that are held, and the age of the oldest without a watch over
// its progress.
func (l *Ledger) Count(now time.Duration) (n int, oldest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.all((*Claim).relies) {
		n++
		if c.progress.Load() == nil {
			oldest = max(oldest, now-c.Began)
		}
	}
	return n, oldest
}

// setContended notes whether others want a name. MUST be called with mu locked.
func (l *Ledger) setContended(key string, contended bool) {
	n := l.of(key)
	defer l.trim(key)
	switch {
	case n.contended == contended:
		return
	case !contended:
		l.contended--
	case l.contended >= maxContended:
		for other, n := range l.names {
			n.contended = false
			l.trim(other)
		}
		l.contended = 1
	default:
		l.contended++
	}
	l.of(key).contended = contended
}

// SetContended notes whether others want a name.
func (l *Ledger) SetContended(name string, contended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setContended(name, contended)
}

// Contended reports whether others wanted a name when it was last seen.
func (l *Ledger) Contended(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.names[name]
	return n != nil && n.contended
}

// Occupied reports whether this client holds the whole name, as far as it knows.
func (l *Ledger) Occupied(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, _ := l.whole(name, Held)
	return c != nil
}

// overdue reports whether a fixed lease has expired here, and the database may still have it. MUST
// be called with the ledger's mutex locked.
func (g *Grant) overdue() bool { return g.state == Uncertain && g.present.state == Ended }

// Overdue returns the claims whose fixed lease has expired here, by attempt.
func (l *Ledger) Overdue() map[string]*Claim {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]*Claim{}
	for id, g := range l.attempts {
		if g.overdue() {
			all[id] = g.present
		}
	}
	return all
}

// Recognize handles the database's claim of an attempt in a session: it passes on the reason of an
// Ask. It returns the grant of an attempt that the client does not know.
func (l *Ledger) Recognize(in *store.Session, a driver.Claim) *Grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.attempts[a.Attempt]
	if g == nil {
		return newGrant(in, a.Name, a.Attempt)
	}
	g.ask(a.Asked)
	return nil
}

// TakenWith notes the Locks with which a lock was first acquired.
func (l *Ledger) TakenWith(c *Claim, all any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.all == nil {
		c.all = all
	}
}

// Together reports whether a lock was acquired together with others.
func (l *Ledger) Together(c *Claim) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return c.all != nil
}
