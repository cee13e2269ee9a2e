package dblocktest

import (
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

// alarms are what clients do at a time: the ends of their fixed leases.
type alarms struct {
	mu  sync.Mutex // protects set, and what is in it
	set map[*alarm]bool
}

// alarm is a function that runs at a time of the clock, once.
type alarm struct {
	at   time.Duration
	f    func()
	rung chan struct{} // nil before f runs; closed after it
}

// alarm calls f when the clock reaches at: by itself, or in Advance.
func (c *clock) alarm(at time.Duration, f func()) (stop func() bool) {
	a := &alarm{at: at, f: f}
	c.alarms.mu.Lock()
	c.alarms.set[a] = true
	c.alarms.mu.Unlock()
	silence := session.Clock(c.elapsed).Alarm(at, func() { c.alarms.ring(a) })
	return func() bool {
		silence()
		c.alarms.mu.Lock()
		defer c.alarms.mu.Unlock()
		delete(c.alarms.set, a)
		return a.rung == nil
	}
}

// ring runs the function of an alarm, or waits for it where it runs already.
func (s *alarms) ring(a *alarm) {
	s.mu.Lock()
	switch {
	case a.rung != nil:
		s.mu.Unlock()
		<-a.rung
	case !s.set[a]: // stopped
		s.mu.Unlock()
	default:
		a.rung = make(chan struct{})
		s.mu.Unlock()
		defer close(a.rung)
		a.f()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.set, a)
	}
}

// next is how long it is to the next alarm, and at most so long.
func (c *clock) next(most time.Duration) time.Duration {
	c.alarms.mu.Lock()
	defer c.alarms.mu.Unlock()
	for a := range c.alarms.set {
		most = min(most, a.at-c.elapsed())
	}
	return most
}

// ringDue rings all alarms that are due, and waits for them.
func (c *clock) ringDue() {
	c.alarms.mu.Lock()
	var due []*alarm
	for a := range c.alarms.set {
		if a.at <= c.elapsed() {
			due = append(due, a)
		}
	}
	c.alarms.mu.Unlock()
	for _, a := range due {
		c.alarms.ring(a)
	}
}
