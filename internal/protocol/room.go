package protocol

// A request for the whole name (Units 0) needs all of it: it fits where nobody holds anything, and
// nothing fits beside it. Any other request needs units: it fits where so many are left, of the
// smallest number that it and the shares state. So a semaphore grows and shrinks while it is in
// use. The first in the queue fits at the latest when nobody holds anything: what waits behind it
// states nothing to it. Readers and permits do not share a name.

// Fits reports whether a name with this row has room for so many units, of the number that is
// stated; 0 is the whole name. A cool-down is not looked at: it needs the time.
func (r Row) Fits(units, of int) bool {
	switch {
	case r.Session != "":
		return false
	case units == 0:
		return r.Units == 0
	}
	return units <= r.beside(of)-r.Units // a sum could overflow
}

// beside is the capacity of the name once units of the stated number are taken.
func (r Row) beside(of int) int {
	if r.Units == 0 {
		return of
	}
	return min(r.Capacity, of)
}

// With is the row once units of the stated number are taken.
func (r Row) With(units, of int) Row {
	r.Mixed = r.Units > 0 && (r.Mixed || r.Capacity != of)
	r.Capacity = r.beside(of)
	r.Units += units
	return r
}

// Joined is the capacity of the name once a request has joined the queue: where nobody holds
// anything, it only tells what the queue is for. A reader collides with permits, and a permit with
// readers.
func (r Row) Joined(of int) (capacity int, collides bool) {
	capacity = r.Capacity
	if r.Units == 0 && r.Waiters == 0 { // it is a remnant of earlier requests, and counts no more
		capacity = 0
	}
	switch {
	case of == 0:
		return capacity, false
	case capacity == 0:
		return of, false
	}
	return capacity, (capacity == Readers) != (of == Readers)
}
