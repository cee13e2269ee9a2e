package ledger

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/clock"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/store"
)

// maxContended bounds the hints about names that others wait for. A forgotten hint costs one
// statement.
const maxContended = 4096

// Config configures a ledger.
type Config struct {
	Host  string
	TTL   time.Duration // also how long the context of a hold stays open after UnlockTx has released it
	Clock clock.Clock
	Log   *slog.Logger
	Calls *store.Calls
	// Ended is called when a hold has ended without Unlock, after the contexts of all holds that
	// end with it.
	Ended func(h *Hold, e Ending)
}

// Ledger keeps the holds of a client, and every attempt that the database may know.
type Ledger struct {
	Owners *Owners
	config Config

	mu        sync.Mutex          // protects the fields below
	closed    bool                // nothing is added any more
	attempts  map[string]*Attempt // by id; those that are gone are not in it
	names     map[string]*name
	contended int // names
}

// name is the entry of a name in the ledger.
type name struct {
	holds     []*Hold // the client relies on these, or did before UnlockTx
	contended bool    // others waited for the name when it was last read
	entering  map[Owner]entry
}

// New makes the ledger of a client.
func New(config Config) *Ledger {
	l := &Ledger{config: config, attempts: map[string]*Attempt{}, names: map[string]*name{}}
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
	if n := l.names[key]; n != nil && len(n.holds) == 0 && !n.contended && len(n.entering) == 0 {
		delete(l.names, key)
	}
}

// held yields the holds of a name on which the client relies. MUST be called with mu locked.
func (l *Ledger) held(key string, f func(h *Hold) (more bool)) {
	if n := l.names[key]; n != nil {
		for _, h := range n.holds {
			if h.state == Held && !f(h) {
				return
			}
		}
	}
}

// move makes every transition of an attempt. An event that is impossible in the attempt's state
// changes nothing, and is logged as an error. MUST be called with mu locked.
func (l *Ledger) move(k *Attempt, e Event) {
	next, possible := k.state.after(e)
	if !possible {
		l.config.Log.Error("dblock: a state that cannot be: please report this",
			"name", k.Name, "attempt", k.ID, "state", k.state, "event", e)
		return
	}
	k.state = next
	if !next.hasHold() {
		k.hold = nil
	}
	if next == Gone {
		if l.attempts[k.ID] == k {
			delete(l.attempts, k.ID)
		}
	} else {
		l.attempts[k.ID] = k
	}
}

// Move makes a transition of an attempt.
func (l *Ledger) Move(k *Attempt, e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.move(k, e)
}

// State returns the state of an attempt.
func (l *Ledger) State(k *Attempt) State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return k.state
}

// StateOf returns the state of a hold. A hold that the attempt does not have any more is Gone:
// another member of its cohort may have the attempt.
func (l *Ledger) StateOf(h *Hold) State {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.hold != h {
		return Gone
	}
	return h.state
}

// Request registers an attempt before it is sent.
func (l *Ledger) Request(name, id string) *Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := &Attempt{Name: name, ID: id}
	l.attempts[id] = k
	return k
}

// Find returns the attempt with an id. If it is gone, Find makes a new Attempt in the state Gone.
func (l *Ledger) Find(name, id string) *Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.attempts[id]; k != nil {
		return k
	}
	return &Attempt{Name: name, ID: id, state: Gone}
}

// Knows reports whether an attempt is in the table: the client may hold or be granted its lock.
func (l *Ledger) Knows(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts[id] != nil
}

// Undo abandons an attempt. done MUST be called when nothing of it is in the database.
func (l *Ledger) Undo(k *Attempt) (done func()) {
	undone := make(chan struct{})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.move(k, Abandon)
	k.undone = undone
	return func() {
		l.Move(k, Finish)
		close(undone)
	}
}

// Undoing returns a channel that is closed when an attempt that is being undone is gone from the
// database. It returns nil if the attempt is not being undone, or waits for the transactions that
// it has guarded.
func (l *Ledger) Undoing(id string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.attempts[id]
	if k == nil || k.state != Undoing || k.Guarded.Load() {
		return nil
	}
	return k.undone
}

// add enters a hold, unless its grant came too late to be relied upon: the client is closed, a
// later grant of the name was entered already, or admit, which is called with mu locked, refuses.
// add also returns another hold that had the whole name until then, as far as the client knew, and
// how that one ends.
func (l *Ledger) add(h *Hold, admit func() bool) (before *Hold, how Ending, added bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, m := l.of(h.Name), h.Mode.Load()
	defer l.trim(h.Name)
	before, was := n.whole(Held, ReleasingTx, AwaitingTx)
	late := before != nil && !m.Shared() && was.Token > m.Token
	if l.closed || h.state != Requested || late || !admit() {
		return nil, Ending{}, false
	}
	l.setContended(h.Name, h.Grant.Contended)
	n = l.of(h.Name)
	if m.Token == 0 || before != nil && was.Doubt == Yielding && m.Shared() {
		before = nil // without tokens the client cannot tell which of the two is later
	}
	l.move(h.Attempt, Grant)
	h.hold = h
	n.holds = append(n.holds, h)
	if before != nil { // the database took the name from that hold
		how = before.ending(errGrantedAgain)
		l.remove(before, how.Event)
	}
	return before, how, true
}

// whole returns the hold in one of the states that has all of the name, with the mode in which it
// has it; nil: there is none. The caller MUST NOT load the mode again: mu does not protect it, and
// after a Downgrade that has ended meanwhile it is neither the whole name nor Yielding.
func (n *name) whole(states ...State) (*Hold, *Mode) {
	for _, s := range states {
		for _, h := range n.holds {
			if m := h.Mode.Load(); h.state == s && !m.Shared() {
				return h, m
			}
		}
	}
	return nil, nil
}

// remove lets an event end a hold. It returns false if the hold has ended already. MUST be called
// with mu locked.
func (l *Ledger) remove(h *Hold, e Event) bool {
	next, possible := h.state.after(e)
	if !possible || h.hold != h {
		return false
	}
	if !next.claimed() {
		n := l.of(h.Name)
		n.holds = slices.DeleteFunc(n.holds, func(other *Hold) bool { return other == h })
		l.trim(h.Name)
	}
	if next == ReleasedTx {
		h.outlives.Store(true)
	}
	l.move(h.Attempt, e)
	return true
}

// EndBy is remove for a caller that has not locked mu.
func (l *Ledger) EndBy(h *Hold, e Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remove(h, e)
}

// relies is Relies for a caller that has locked mu.
func (h *Hold) relies() bool { return h.hold == h && h.state == Held }

// Relies reports whether the client relies on a hold.
func (l *Ledger) Relies(h *Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return h.relies()
}

// HeldBy returns the hold of an attempt on which the client relies; nil: none.
func (l *Ledger) HeldBy(attempt string) *Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k := l.attempts[attempt]; k != nil && k.state == Held {
		return k.hold
	}
	return nil
}

// Owned returns the hold of a name that an owner would enter again; nil: there is none.
func (l *Ledger) Owned(name string, o Owner) (owned *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held(name, func(h *Hold) bool {
		if h.Owner == o && !h.Mode.Load().permit() {
			owned = h
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
	l.held(name, func(h *Hold) bool {
		if m := h.Mode.Load(); m.permit() && h.Owner == o && h.encloses(ctx) {
			n, of = n+m.Units, m.Of
		}
		return true
	})
	return n, of
}

// enclosing returns the holds of a name whose contexts enclose ctx.
func (l *Ledger) enclosing(ctx context.Context, name string) (all []Enclosing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held(name, func(h *Hold) bool {
		if h.encloses(ctx) && h.ctx.Err() == nil && h.In.Over() == nil {
			m := h.Mode.Load()
			all = append(all, Enclosing{h.Owner, h.In.ID, m.Units, m.Of})
		}
		return true
	})
	return all
}

// Close keeps anything from being added from now on, and returns the holds.
func (l *Ledger) Close() (holds []*Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return l.all(func(*Hold) bool { return true })
}

// all returns the holds that the database may have and that satisfy want. MUST be called with mu
// locked.
func (l *Ledger) all(want func(h *Hold) bool) (holds []*Hold) {
	for _, n := range l.names {
		for _, h := range n.holds {
			if want(h) {
				holds = append(holds, h)
			}
		}
	}
	return holds
}

// Of returns the holds of a session that the database may have, by attempt.
func (l *Ledger) Of(s *store.Session) map[string]*Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	holds := map[string]*Hold{}
	for _, h := range l.all(func(h *Hold) bool { return h.In == s }) {
		holds[h.ID] = h
	}
	return holds
}

// Holding reports whether the client has a lock that others could want or take.
func (l *Ledger) Holding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.attempts {
		if k.state.claimed() || k.state == Overdue {
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

// Count returns the number of holds, and the age of the oldest without a watch over its progress.
func (l *Ledger) Count(now time.Duration) (n int, oldest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.all(func(h *Hold) bool { return h.state == Held }) {
		n++
		if h.progress.Load() == nil {
			oldest = max(oldest, now-h.Began)
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

// Crowded returns the holds of an owner that the database may show as another owner's, because they
// were granted to a cohort. Owners are compared as the database knows them, also for a lease that
// is acquired for a transaction.
func (l *Ledger) Crowded(o Owner) []*Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all(func(h *Hold) bool {
		return h.state == Held && h.Owner.Host == o.Host && h.Owner.Thread == o.Thread && h.Member.InOpenCohort()
	})
}

// Occupied reports whether this client has the whole name, as far as it knows.
func (l *Ledger) Occupied(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.names[name]
	if n == nil {
		return false
	}
	h, _ := n.whole(Held)
	return h != nil
}

// Overdue returns the attempts whose fixed lease has expired here.
func (l *Ledger) Overdue() map[string]*Hold {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]*Hold{}
	for id, k := range l.attempts {
		if k.state == Overdue {
			all[id] = k.hold
		}
	}
	return all
}

// Found handles the database's claim of an attempt: it passes on the reason of an Ask. It returns
// the attempt if the client does not know it.
func (l *Ledger) Found(a driver.Claim) *Attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.attempts[a.Attempt]
	if k == nil {
		return &Attempt{Name: a.Name, ID: a.Attempt}
	}
	if k.hold != nil && k.hold.relies() {
		k.hold.ask(a.Asked)
	}
	return nil
}

// TakenWith notes the Locks with which a hold was first acquired.
func (l *Ledger) TakenWith(h *Hold, all any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.all == nil {
		h.all = all
	}
}

// Together reports whether a hold was acquired together with others.
func (l *Ledger) Together(h *Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return h.all != nil
}
