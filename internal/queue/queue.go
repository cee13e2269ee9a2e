// Package queue decides which request gets a name next. It does no I/O: an engine reads the rows,
// asks here, and writes what was decided.
//
// A name has one queue: first come, first served. A request for the whole name (Units 0) needs all
// of it: it fits where nobody holds anything, and nothing fits beside it. Any other request needs
// units of the name: a reader one of driver.Readers, a permit some of a fixed number. It fits where
// so many are left. All requests that share a name, or wait for it, count the same number of units.
//
// A request that finds the queue empty and fits is granted at once. Any other waits. Whatever makes
// room starts a Walk through the queue, in the order of the tickets. The walk grants each waiter
// that fits and dismisses the dead. It ends at the first live waiter that does not fit: nothing
// overtakes that one.
//
// The engines of MySQL and SQLite walk with this package. PostgreSQL walks in one statement
// (HandOver). The behaviour suite compares what each engine does with what this package says.
package queue

import "github.com/dblock-go/dblock/driver"

// State is what decides about a name.
type State struct {
	Held     bool // one holder has the whole name
	Resting  bool // nobody gets the name yet, for the sake of MinHold
	Used     int  // units that holders share
	Capacity int  // how many units there are; it counts while some are used or there are waiters
	Waiters  int  // places in the queue, those of the dead too
}

// Of is the state of a name that was looked at.
func Of(s driver.State) State {
	return State{
		Held: s.Holder.Session != "" && s.Sharing == 0, Resting: s.Rest > 0,
		Used: s.Used, Capacity: s.Capacity, Waiters: s.Waiters,
	}
}

// Fits reports whether there is room for so many units; 0 is the whole name.
func (s State) Fits(units int) bool {
	switch {
	case s.Held || s.Resting:
		return false
	case units == 0:
		return s.Used == 0
	}
	return units <= s.Capacity-s.Used // a sum could overflow
}

// Join is the capacity of the name once a request has joined those who share it or wait for it. A
// request that counts another number of units than they do collides with them.
func (s State) Join(r driver.Request) (capacity int, collides bool) {
	capacity = s.Capacity
	if s.Used == 0 && s.Waiters == 0 { // it is a remnant of earlier requests, and counts no more
		capacity = 0
	}
	switch {
	case r.Units == 0:
		return capacity, false
	case capacity == 0:
		return r.Of, false
	}
	return capacity, capacity != r.Of
}

// Free reports whether a request is granted at once: it fits, and there are no waiters.
func (s State) Free(r driver.Request) bool {
	capacity, collides := s.Join(r)
	s.Capacity = capacity
	return !collides && s.Waiters == 0 && s.Fits(r.Units)
}

// Waiter is one place in the queue.
type Waiter struct {
	Units int  // 0: the whole name
	Dead  bool // its session is
}

// Verdict is what becomes of a waiter.
type Verdict int

const (
	Waits     Verdict = iota // and so do all behind it: the walk has ended
	Granted                  // it fits
	Dismissed                // it is dead: it leaves the queue with nothing
)

// Walk is a hand-over under way. It meets the waiters one after the other, so that an engine can
// read the queue in pages.
type Walk struct {
	State // with what was granted so far
	ended bool
}

// Goes reports whether there may be something to grant to those whom the walk has not met yet.
func (w *Walk) Goes() bool { return !w.ended && !w.Held && !w.Resting && w.Waiters > 0 }

// Meet decides about the next waiter in the order of the tickets. The dead behind a grant of the
// whole name wait for the next walk.
func (w *Walk) Meet(next Waiter) Verdict {
	if w.ended = w.ended || w.Held || w.Resting || !next.Dead && !w.Fits(next.Units); w.ended {
		return Waits
	}
	w.Waiters = max(w.Waiters-1, 0) // where rows were deleted by hand it was wrong
	if next.Dead {
		return Dismissed
	}
	w.Held = next.Units == 0
	w.Used += next.Units
	return Granted
}
