package wait

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// runLimit is how long a run goes on in memory. Then the database is told who has the lock.
const runLimit = 20 * time.Millisecond

// stage is how far a run has got.
type stage int

const (
	passing   stage = iota // its members get the lock from each other
	settling               // the database is told who has it: nobody gets it from another any more
	releasing              // its last member gives it back, with the whole run
	over                   // the database knows of no run
)

// Run is a grant of a name to several waiters of the hub at once, its members. They get the lock
// one after the other, in the order of their tokens and without the database (lock cohorting, as in
// Dice, Marathe and Shavit 2012). Whatever must be true in the database as well settles the run
// first: then its present member is a plain holder, and those behind it wait again. A run never
// goes on after that.
type Run struct {
	Name  string
	Range driver.Range

	hub   *Hub
	asked time.Duration // before the statement was sent that told of it
	ended chan struct{} // closed when it is over
	timer *time.Timer

	// The hub's mu protects what follows.
	stage   stage
	present driver.Own   // the member that has the lock; none: it was taken back
	holder  *Waiter      // of the present member
	served  []string     // the attempts that had it before
	pending []driver.Own // those behind it
}

// begin makes a run of what was granted, and gives the lock to its first member that waits here. A
// run that was heard of already is passed over: its members may have had the lock since. MUST be
// called with mu locked.
func (h *Hub) begin(members []driver.Own, asked time.Duration) {
	name := ""
	for _, m := range members {
		if w := h.waiters[m.Attempt]; w != nil {
			name = w.Name
		}
	}
	if name == "" { // all have left, and give back what they got
		return
	}
	r := &Run{Name: name, Range: members[0].Grant.Run, hub: h, asked: asked, ended: make(chan struct{}), pending: members}
	if r.Range.First <= h.latest[name] {
		return
	}
	h.supersede(name, r.Range.First)
	h.latest[name] = r.Range.Last
	h.runs[name] = r
	r.next()
	r.timer = time.AfterFunc(runLimit, func() { r.Settle() })
}

// supersede ends the run of a name after which another grant of it was made. MUST be called with mu
// locked.
func (h *Hub) supersede(name string, token int64) {
	if r := h.runs[name]; r != nil && r.Range.Last < token {
		r.retract()
		r.settle()
	}
}

// retract takes the lock back from a present member that does not know of it yet: it waits as
// before, and a look tells whether it has been granted the name anew. MUST be called with mu
// locked.
func (r *Run) retract() {
	if r.holder == nil || r.stage == over {
		return
	}
	select {
	case <-r.holder.C:
		r.hub.register(r.holder)
		r.hub.due[r.Name] = 0
		r.hub.wake()
		r.present, r.holder = driver.Own{}, nil
	default: // it has the lock
	}
}

// Disown ends a run that the database has taken from the session. It returns the member that has
// the lock as far as it knows.
func (r *Run) Disown() (present driver.Own) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.retract()
	r.end()
	return r.present
}

// next gives the lock to the next member that waits here; false: there is none. MUST be called with
// mu locked.
func (r *Run) next() bool {
	for len(r.pending) > 0 {
		r.present, r.pending = r.pending[0], r.pending[1:]
		if w := r.hub.waiters[r.present.Attempt]; w != nil {
			r.holder = w
			r.hub.answer(w, Result{Granted: true, Grant: r.present.Grant, Asked: r.asked, Run: r})
			return true
		}
	}
	return false
}

// Pass gives the lock to the next member, if the attempt has it. False: there is none any more, and
// the whole run is to be released; or it was settled, or is being settled, which has to be waited
// for (Settled).
func (r *Run) Pass(attempt string) bool {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if r.stage != passing || r.present.Attempt != attempt {
		return false
	}
	present := r.present
	if r.next() {
		r.served = append(r.served, attempt)
		return true
	}
	r.present, r.stage = present, releasing
	r.timer.Stop()
	return false
}

// Settle has the database told who has the lock, unless that was done. The channel is closed when
// the database knows, or the session is over.
func (r *Run) Settle() (ended <-chan struct{}) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.settle()
	return r.ended
}

// settle MUST be called with mu locked.
func (r *Run) settle() {
	if r.stage != passing {
		return
	}
	r.timer.Stop()
	if r.hub.ctx.Err() != nil {
		r.end()
		return
	}
	r.stage = settling
	present, served := r.present, len(r.served)
	r.hub.done.Go(func() {
		r.hub.config.Settle(r.hub.ctx, r, present, served)
		r.End()
		close(r.ended)
	})
}

// Settled waits for a settling that is under way.
func (r *Run) Settled(ctx context.Context) error {
	if r.is(settling) {
		select {
		case <-r.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// Releasing reports whether the whole run is to be released.
func (r *Run) Releasing() bool { return r.is(releasing) }

// Over reports whether the database knows of no run any more.
func (r *Run) Over() bool { return r.is(over) }

func (r *Run) is(s stage) bool {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return r.stage == s
}

// End notes that the database knows of no run any more, and returns the attempts that it was passed
// on from.
func (r *Run) End() (served []string) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.end()
	return r.served
}

// end MUST be called with mu locked.
func (r *Run) end() {
	switch r.stage {
	case over:
		return
	case passing, releasing:
		close(r.ended)
	}
	r.stage = over
	if r.hub.runs[r.Name] == r {
		delete(r.hub.runs, r.Name)
	}
}

// Ahead is how many attempts of the session wait for a name here whose grants may be part of a run,
// and one more where they get it from each other. rivals: another session was granted it after the
// session's latest release.
func (h *Hub) Ahead(name string) (n int, rivals bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = h.names[name].passable
	if h.runs[name] != nil {
		n++
	}
	return n, h.rivals[name]
}

// Runs are those that are not over.
func (h *Hub) Runs() []*Run {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.runs))
}
