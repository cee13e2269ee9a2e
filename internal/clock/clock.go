// Package clock has the clock and the timers of a client. TTLs, heartbeats, looks, leases,
// back-offs and deadlock delays use a Clock, so that a test can move it. The timeouts of I/O calls
// are contexts, and stay in real time.
package clock

import (
	"context"
	"time"
)

// Clock is a clock with timers.
type Clock interface {
	// Now returns the time since some fixed moment.
	Now() time.Duration
	// NewTimer makes a timer. After the timer has fired, its owner MUST call Reset or Stop when the
	// work is done: a clock that is moved waits for that.
	NewTimer(d time.Duration) *Timer
	// Alarm calls f in a goroutine of its own when the clock reaches at, unless it is stopped
	// before.
	Alarm(at time.Duration, f func()) (stop func() bool)
}

// Timer is a time.Timer of a Clock. One goroutine owns it.
type Timer struct {
	C <-chan time.Time

	timer *time.Timer
	by    *Movable // nil: only Go's own timer
	due   time.Duration
	stuck bool // Move has stopped waiting for its owner
}

func newTimer(d time.Duration) *Timer {
	t := time.NewTimer(d)
	return &Timer{C: t.C, timer: t}
}

// Reset works like that of time.Timer.
func (t *Timer) Reset(d time.Duration) {
	if t.by != nil {
		t.by.arm(t, d)
		return
	}
	t.timer.Reset(d)
}

// Stop works like that of time.Timer.
func (t *Timer) Stop() {
	if t.by != nil {
		t.by.disarm(t)
		return
	}
	t.timer.Stop()
}

// Func is a function that returns the time. Its timers are Go's own.
type Func func() time.Duration

// Now calls the function.
func (now Func) Now() time.Duration { return now() }

// NewTimer is time.NewTimer.
func (Func) NewTimer(d time.Duration) *Timer { return newTimer(d) }

// alarmCheck is the interval at which an alarm reads the clock. Go's timers stop while the machine
// sleeps; the clock may go on.
const alarmCheck = time.Second

// Alarm reads the clock each second.
func (now Func) Alarm(at time.Duration, f func()) (stop func() bool) {
	var timer *time.Timer
	armed := make(chan struct{}) // closed when timer is set, for the timer's own function
	timer = time.AfterFunc(min(alarmCheck, at-now()), func() {
		<-armed
		if left := at - now(); left > 0 {
			timer.Reset(min(alarmCheck, left))
			return
		}
		f()
	})
	close(armed)
	return timer.Stop
}

type key struct{}

// With returns a context whose From is c, for packages whose API has no place for a clock.
func With(ctx context.Context, c Clock) context.Context { return context.WithValue(ctx, key{}, c) }

// From returns the clock of With. Default: Go's monotonic clock.
func From(ctx context.Context) Clock {
	if c, ok := ctx.Value(key{}).(Clock); ok {
		return c
	}
	return monotonic
}

var (
	began     = time.Now()
	monotonic = Func(func() time.Duration { return time.Since(began) })
)
