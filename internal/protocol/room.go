package protocol

// A request for the whole name (Units 0) needs all of it: it fits if the name has no holder, and
// nothing fits beside it. Any other request needs units: it fits if so many are left, of the
// smallest number that the request and the shares state. So a semaphore grows and shrinks while it
// is in use. The first in the queue fits at the latest when the name has no holder: a waiter behind
// it does not limit it. Readers and permits do not share a name.

// Free reports whether a request for so many units, of the stated number, is granted at once: it
// fits, nobody waits, the name does not rest, and the request collides with none.
func (r Row) Free(units, of int, now int64) bool {
	if units == 0 {
		of = 0
	}
	_, collides := r.Joined(of)
	return !collides && r.Waiters == 0 && r.Rests <= now && r.Fits(units, of)
}

// Fits reports whether a name with this row has room for so many units, of the stated number; 0 is
// the whole name. Fits ignores a cool-down, which needs the time.
func (r Row) Fits(units, of int) bool {
	switch {
	case r.Session != "":
		return false
	case units == 0:
		return r.Units == 0
	}
	return units <= r.beside(of)-r.Units // a sum could overflow
}

// beside returns the capacity of the name once units of the stated number are taken.
func (r Row) beside(of int) int {
	if r.Units == 0 {
		return of
	}
	return min(r.Capacity, of)
}

// With returns the row once units of the stated number are taken.
func (r Row) With(units, of int) Row {
	r.Mixed = r.Units > 0 && (r.Mixed || r.Capacity != of)
	r.Capacity = r.beside(of)
	r.Units += units
	return r
}

// Joined returns the capacity of the name once a request has joined the queue. While the name has
// no holder, the capacity only tells whether the queue is for readers or for permits. A reader
// collides with permits, and a permit with readers.
func (r Row) Joined(of int) (capacity int, collides bool) {
	capacity = r.Capacity
	if r.Units == 0 && r.Waiters == 0 { // a remnant of earlier requests, which does not count
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
