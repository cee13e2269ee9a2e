// Package queue decides which request gets a name next. It does no I/O: an engine reads the rows,
// asks here, and writes what was decided.
//
// A name has one queue: first come, first served. A request for the whole name (Units 0) needs all
// of it: it fits where nobody holds anything, and nothing fits beside it. Any other request needs
// units of the name: a reader one of driver.Readers, a permit some of the number that it states. It
// fits where so many are left, of the smallest number that it and the holders state. So a semaphore
// grows and shrinks while it is in use. The first in the queue fits at the latest when nobody holds
// anything: what waits behind it states nothing to it. Readers and permits do not share a name.
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
	Capacity int  // the smallest number of units that a holder states; it counts while some are used or there are waiters
	Mixed    bool // the holders state several numbers: the smallest may rise when one of them leaves
	Waiters  int  // places in the queue, those of the dead too
}

// Of is the state of a name that was looked at.
func Of(s driver.State) State {
	return State{
		Held: s.Holder.Session != "" && s.Sharing == 0, Resting: s.Rest > 0,
		Used: s.Used, Capacity: s.Capacity, Waiters: s.Waiters,
	}
}

// Fits reports whether there is room for so many units, of the number that is stated; 0 is the
// whole name.
func (s State) Fits(units, of int) bool {
	switch {
	case s.Held || s.Resting:
		return false
	case units == 0:
		return s.Used == 0
	}
	return units <= s.Beside(of)-s.Used // a sum could overflow
}

// Beside is the capacity of the name once units of the stated number are taken.
func (s State) Beside(of int) int {
	if s.Used == 0 {
		return of
	}
	return min(s.Capacity, of)
}

// With is the name once units of the stated number are taken.
func (s State) With(units, of int) State {
	s.Mixed = s.Used > 0 && (s.Mixed || s.Capacity != of)
	s.Capacity = s.Beside(of)
	s.Used += units
	return s
}

// Join is the capacity of the name once a request has joined the queue: where nobody holds
// anything, it only tells what the queue is for. A reader collides with permits, and a permit with
// readers.
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
	return capacity, (capacity == driver.Readers) != (r.Of == driver.Readers)
}

// Free reports whether a request is granted at once: it fits, and there are no waiters.
func (s State) Free(r driver.Request) bool {
	_, collides := s.Join(r)
	return !collides && s.Waiters == 0 && s.Fits(r.Units, r.Of)
}

// Waiter is one place in the queue.
type Waiter struct {
	Units int  // 0: the whole name
	Of    int  // with Units: the number that it states
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
	if w.ended = w.ended || w.Held || w.Resting || !next.Dead && !w.Fits(next.Units, next.Of); w.ended {
		return Waits
	}
	w.Waiters = max(w.Waiters-1, 0) // where rows were deleted by hand it was wrong
	if next.Dead {
		return Dismissed
	}
	if w.Held = next.Units == 0; !w.Held {
		w.State = w.With(next.Units, next.Of)
	}
	return Granted
}
