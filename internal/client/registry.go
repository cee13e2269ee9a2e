package client

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/store"
)

// maxContended bounds the hints about names that others wait for. To forget them costs a statement
// here and there.
const maxContended = 4096

// registry is what a client believes to hold, and every attempt that the database may know.
type registry struct {
	log       *slog.Logger
	mu        sync.Mutex          // protects what follows
	closed    bool                // nothing is added any more
	attempts  map[string]*attempt // by attempt; those that are gone are not in it
	holds     map[string]*hold    // by attempt; what is relied upon: it is Held
	names     map[string][]*hold  // the same by name
	leaving   map[string][]*hold  // by name; what UnlockTx may have released: it is ReleasingTx
	contended map[string]bool     // names that others waited for when last seen
}

func newRegistry(log *slog.Logger) *registry {
	return &registry{
		log:      log,
		attempts: map[string]*attempt{}, holds: map[string]*hold{}, names: map[string][]*hold{}, leaving: map[string][]*hold{}, contended: map[string]bool{},
	}
}

// move is every transition of an attempt. An event that is impossible in the state that the attempt
// is in changes nothing, and is logged as an error: none happens. MUST be called with mu locked.
func (r *registry) move(c *attempt, e event) {
	next, possible := c.state.after(e)
	if !possible {
		r.log.Error("dblock: a state that cannot be: please report this", "name", c.name, "attempt", c.id, "state", c.state, "event", e)
		return
	}
	c.state = next
	if next == Gone {
		if r.attempts[c.id] == c {
			delete(r.attempts, c.id)
		}
	} else {
		r.attempts[c.id] = c
	}
}

// transition is move for a caller that has not locked mu.
func (r *registry) transition(c *attempt, e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.move(c, e)
}

func (r *registry) state(c *attempt) State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return c.state
}

// request registers an attempt before it is sent.
func (r *registry) request(name, id string) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &attempt{name: name, id: id}
	r.attempts[id] = c
	return c
}

// attempt returns the attempt of a name with an id. One that is gone is made anew.
func (r *registry) attempt(name, id string) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k := r.attempts[id]; k != nil {
		return k
	}
	return &attempt{name: name, id: id, state: Gone}
}

// knows reports whether this client may have, or get, what an attempt was for.
func (r *registry) knows(attempt string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.attempts[attempt] != nil
}

// add registers a hold, unless its grant came too late to be relied upon: the client is closed, a
// later grant of the name is here already, or admit, which is called with mu locked, says so. It
// returns another hold that had the whole name until then, as far as was known, and how that ends.
func (r *registry) add(h *hold, admit func() bool) (before *hold, how ending, added bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := h.mode.Load()
	before = cmp.Or(whole(r.names[h.name]), whole(r.leaving[h.name]))
	if r.closed || h.state != Requested || before != nil && !m.shared() && before.mode.Load().token > m.token || !admit() {
		return nil, ending{}, false
	}
	if h.contended {
		r.noteContended(h.name)
	} else {
		delete(r.contended, h.name)
	}
	if m.token == 0 || before != nil && before.mode.Load().doubt == yielding && m.shared() {
		before = nil // without tokens nobody can tell which of two is the later
	}
	r.move(h.attempt, grant)
	r.put(h)
	if before != nil { // the database took it from that one
		how = before.gone(errGrantedAgain)
		r.remove(before, how.event)
	}
	return before, how, true
}

// put makes a hold one that is relied upon. MUST be called with mu locked.
func (r *registry) put(h *hold) {
	r.holds[h.id] = h
	r.names[h.name] = append(r.names[h.name], h)
}

// whole is the one of these holds that has all of the name; nil: none has.
func whole(holds []*hold) *hold {
	if i := slices.IndexFunc(holds, func(h *hold) bool { return !h.mode.Load().shared() }); i >= 0 {
		return holds[i]
	}
	return nil
}

// remove takes a hold out of what is relied upon, or of what UnlockTx may have released; false if
// it was out already. MUST be called with mu locked.
func (r *registry) remove(h *hold, e event) bool {
	_, possible := h.state.after(e)
	switch {
	case !possible:
		return false
	case r.holds[h.id] == h:
		delete(r.holds, h.id)
		without(r.names, h)
	case slices.Contains(r.leaving[h.name], h):
		without(r.leaving, h)
	case h.state != ReleasedTx: // which is in none of these
		return false
	}
	r.move(h.attempt, e)
	return true
}

// without takes a hold out of holds by name.
func without(names map[string][]*hold, h *hold) {
	if names[h.name] = slices.DeleteFunc(names[h.name], func(other *hold) bool { return other == h }); len(names[h.name]) == 0 {
		delete(names, h.name)
	}
}

// forfeit takes out a hold that has ended without Unlock, and returns how it has; false if it was
// out already.
func (r *registry) forfeit(h *hold, reason error) (how ending, taken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	how = h.gone(reason)
	return how, r.remove(h, how.event)
}

// releaseTx makes a hold one that UnlockTx may have released; false if it has ended. answered MUST
// be called with what came of the statement: where that failed, and no other UnlockTx was called,
// the hold is relied upon again.
func (r *registry) releaseTx(h *hold) (answered func(err error), ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := h.state == Held
	if !r.remove(h, releaseTx) {
		return nil, false
	}
	r.leaving[h.name] = append(r.leaving[h.name], h)
	h.begun++
	mine := h.begun
	return func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		h.answered++
		if err != nil && first && h.begun == mine {
			r.rollBack(h)
		}
	}, true
}

// releasedTx reports whether UnlockTx may have released a hold. It is called before the database is
// asked whether it has the hold. If it does, and no transaction was in the way, the transaction of
// UnlockTx was rolled back: shown is called then. An UnlockTx whose statement was on its way in the
// meantime may have come after the answer: then that shows nothing.
func (r *registry) releasedTx(h *hold) (may bool, shown func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	begun, answered := h.begun, h.answered
	return h.state == ReleasingTx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if begun == answered && h.begun == begun {
			r.rollBack(h)
		}
	}
}

// rollBack makes a hold that UnlockTx has not released one that is relied upon again. MUST be
// called with mu locked.
func (r *registry) rollBack(h *hold) {
	if r.remove(h, rollback) {
		r.put(h)
	}
}

// relies reports whether a hold is relied upon.
func (r *registry) relies(h *hold) bool { return r.held(h.id) == h }

// take is remove for a caller that has not locked mu.
func (r *registry) take(h *hold, e event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.remove(h, e)
}

// owned is what an owner holds of a name, and would enter again; nil: nothing.
func (r *registry) owned(name string, o Owner) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := slices.IndexFunc(r.names[name], func(h *hold) bool { return h.owner == o && !h.mode.Load().permit() }); i >= 0 {
		return r.names[name][i]
	}
	return nil
}

// units are what an owner has of a name by permits that ctx is under, and of how many: they cannot
// come back before ctx is done with.
func (r *registry) units(ctx context.Context, name string, o Owner) (n, of int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.names[name] {
		if m := h.mode.Load(); m.permit() && h.owner == o && h.encloses(ctx) {
			n, of = n+m.units, m.of
		}
	}
	return n, of
}

// enclosing are the holds of a name that ctx is under.
func (r *registry) enclosing(ctx context.Context, name string) (all []enclosing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.names[name] {
		if h.encloses(ctx) && h.ctx.Err() == nil && h.in.Over() == nil {
			m := h.mode.Load()
			all = append(all, enclosing{h.owner, h.in.ID, m.units, m.of})
		}
	}
	return all
}

// close lets nothing be added any more, and returns what is held.
func (r *registry) close() (holds []*hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return slices.Collect(r.all())
}

// all are the holds that the database may have: what is relied upon, and what UnlockTx may have
// released. MUST be used with mu locked.
func (r *registry) all() iter.Seq[*hold] {
	return func(yield func(*hold) bool) {
		for _, names := range []map[string][]*hold{r.names, r.leaving} {
			for _, holds := range names {
				for _, h := range holds {
					if !yield(h) {
						return
					}
				}
			}
		}
	}
}

// heldBy returns what the database may have of a session's holds, by attempt.
func (r *registry) heldBy(s *store.Session) map[string]*hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	holds := make(map[string]*hold, len(r.holds))
	for h := range r.all() {
		if h.in == s {
			holds[h.id] = h
		}
	}
	return holds
}

// holding reports whether there is anything that others could want or take.
func (r *registry) holding() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.holds) > 0 || len(r.leaving) > 0 {
		return true
	}
	for _, c := range r.attempts {
		if c.state == Overdue {
			return true
		}
	}
	return false
}

// empty reports whether the client holds nothing, asks for nothing, and has nothing to give back.
func (r *registry) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.attempts) == 0
}

// noteContended remembers that others want a name. MUST be called with mu locked.
func (r *registry) noteContended(name string) {
	if len(r.contended) >= maxContended {
		clear(r.contended)
	}
	r.contended[name] = true
}

func (r *registry) setContended(name string, contended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if contended {
		r.noteContended(name)
	} else {
		delete(r.contended, name)
	}
}

func (r *registry) isContended(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.contended[name]
}

// crowded returns the holds of an owner that the database may show as another owner's. It goes by
// the owner that the database knows, also for a lease that is taken for a transaction.
func (r *registry) crowded(o Owner) (holds []*hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.holds {
		if h.owner.Host == o.Host && h.owner.Thread == o.Thread && h.member.Shared() {
			holds = append(holds, h)
		}
	}
	return holds
}

// occupied reports whether this client has the whole name, or may have.
func (r *registry) occupied(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return whole(r.names[name]) != nil
}

// leaseEnd is when the fixed lease of a hold ends, on the client's clock.
func (r *registry) leaseEnd(h *hold) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return h.end
}

// overdue are the attempts whose fixed lease is over here.
func (r *registry) overdue() map[string]*attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]*attempt{}
	for attempt, c := range r.attempts {
		if c.state == Overdue {
			all[attempt] = c
		}
	}
	return all
}

// held is the hold of an attempt, nil for none.
func (r *registry) held(attempt string) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holds[attempt]
}

// found notes what the database has of an attempt, and returns it where the client knows of
// none.
func (r *registry) found(c driver.Attempt) *attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.holds[c.Attempt]; h != nil {
		h.ask(c.Asked)
	}
	if r.attempts[c.Attempt] != nil {
		return nil
	}
	return &attempt{name: c.Name, id: c.Attempt}
}
