package clock

import (
	"sync"
	"time"
)

// Deadline is a moment of a clock. It can be moved until it has passed: once a caller has been told
// that it has, it stays so, whatever another caller knew before. It is safe for concurrent use.
type Deadline struct {
	clock Clock

	mu     sync.Mutex // protects the fields below; nothing is called with mu locked but the clock
	at     time.Duration
	passed bool
}

// NewDeadline makes a deadline.
func NewDeadline(c Clock, at time.Duration) *Deadline { return &Deadline{clock: c, at: at} }

// At returns the moment of the deadline.
func (d *Deadline) At() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at
}

// Passed reports whether the deadline has passed, by the clock now.
func (d *Deadline) Passed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pass()
}

// Move moves the deadline, and never back. It returns false if the deadline has passed.
func (d *Deadline) Move(at time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pass() {
		return false
	}
	d.at = max(d.at, at)
	return true
}

// pass is Passed for a caller that has locked mu.
func (d *Deadline) pass() bool {
	d.passed = d.passed || d.clock.Now() >= d.at
	return d.passed
}
