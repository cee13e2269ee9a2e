package clock

import (
	"math"
	"sync"
	"time"
)

// Movable is a clock for tests: real time, plus the sum of all Moves. A bubble of testing/synctest
// may have one of its own.
type Movable struct {
	began time.Time

	mu     sync.Mutex // protects the fields below
	ahead  time.Duration
	timers map[*Timer]bool // the timers that were not stopped
	idle   chan struct{}   // closed, and made anew, when a timer is reset or stopped
	alarms map[*alarm]bool
}

// alarm is a function that runs at a time of the clock, once.
type alarm struct {
	at    time.Duration
	f     func()
	timer *time.Timer
	rung  chan struct{} // nil before f runs; closed after it
}

// NewMovable makes a clock that begins at 0.
func NewMovable() *Movable {
	return &Movable{began: time.Now(), timers: map[*Timer]bool{}, idle: make(chan struct{}), alarms: map[*alarm]bool{}}
}

// Began returns when the clock was at 0.
func (m *Movable) Began() time.Time { return m.began }

// Now returns real time, plus the sum of all Moves.
func (m *Movable) Now() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now()
}

// now is Now for a caller that has locked mu.
func (m *Movable) now() time.Duration { return time.Since(m.began) + m.ahead }

// NewTimer makes a timer that fires by itself, or in Move.
func (m *Movable) NewTimer(d time.Duration) *Timer {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := newTimer(d)
	t.by, t.due = m, m.now()+d
	m.timers[t] = true
	return t
}

// arm records a new time of a timer.
func (m *Movable) arm(t *Timer, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.timer.Reset(d)
	t.due, t.stuck = m.now()+d, false
	m.timers[t] = true
	m.pass()
}

func (m *Movable) disarm(t *Timer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t.timer.Stop()
	delete(m.timers, t)
	m.pass()
}

// pass wakes a Move that waits. MUST be called with mu locked.
func (m *Movable) pass() {
	close(m.idle)
	m.idle = make(chan struct{})
}

// Alarm calls f by itself, or in Move.
func (m *Movable) Alarm(at time.Duration, f func()) (stop func() bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := &alarm{at: at, f: f}
	a.timer = time.AfterFunc(at-m.now(), func() { m.ring(a) })
	m.alarms[a] = true
	return func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		a.timer.Stop()
		delete(m.alarms, a)
		return a.rung == nil
	}
}

// ring runs the function of an alarm, or waits for it where it runs already.
func (m *Movable) ring(a *alarm) {
	m.mu.Lock()
	switch {
	case a.rung != nil:
		m.mu.Unlock()
		<-a.rung
	case !m.alarms[a]: // stopped
		m.mu.Unlock()
	default:
		a.rung = make(chan struct{})
		m.mu.Unlock()
		defer close(a.rung)
		a.f()
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.alarms, a)
	}
}

// NextAlarm returns the time until the next alarm; the largest Duration if there is none.
func (m *Movable) NextAlarm() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := time.Duration(math.MaxInt64)
	for a := range m.alarms {
		next = min(next, a.at-m.now())
	}
	return next
}

// settleLimit bounds how long Move waits for the owners of timers that have fired. One of them may
// wait for a transaction of the test's own.
const settleLimit = time.Second

// Move moves the clock forward. It fires the timers that are due then, runs the alarms, and waits
// until their work is done.
func (m *Movable) Move(by time.Duration) { m.Pause(by)() }

// Pause moves the clock forward as a pause of the process does: timers and alarms that are due are
// late until resume is called, which is the rest of Move.
func (m *Movable) Pause(by time.Duration) (resume func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.now()
	m.ahead += by
	return func() { m.fire(before) }
}

// fire fires the timers and runs the alarms that became due after a time.
func (m *Movable) fire(before time.Duration) {
	for _, a := range m.due(before) {
		m.ring(a)
	}
	limit := time.NewTimer(settleLimit)
	defer limit.Stop()
	for {
		idle, busy := m.busy()
		if len(busy) == 0 {
			return
		}
		select {
		case <-idle:
		case <-limit.C:
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, t := range busy {
				t.stuck = true
			}
			return
		}
	}
}

// busy returns the timers that have fired and whose owners are still working.
func (m *Movable) busy() (idle <-chan struct{}, busy []*Timer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for t := range m.timers {
		if t.due <= m.now() && !t.stuck {
			busy = append(busy, t)
		}
	}
	return m.idle, busy
}

// due arms the timers anew, and returns the alarms that are due.
func (m *Movable) due(before time.Duration) (due []*alarm) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for t := range m.timers {
		if t.due > before { // else it has fired
			t.timer.Reset(t.due - m.now())
		}
	}
	for a := range m.alarms {
		switch {
		case a.at <= m.now():
			due = append(due, a)
		case a.timer.Stop():
			a.timer.Reset(a.at - m.now())
		}
	}
	return due
}
