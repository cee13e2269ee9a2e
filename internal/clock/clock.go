// Package clock is time as a client sees it: what it reads, and what wakes it. TTLs, heartbeats,
// looks, leases, back-offs and deadlock delays go through a Clock, so that a test can move it. What
// bounds an I/O call is a context with a timeout, and stays in real time.
package clock

import (
	"context"
	"time"
)

// Clock is a clock with timers.
type Clock interface {
	// Now is the time since some fixed moment.
	Now() time.Duration
	// NewTimer makes a timer. Its owner MUST call Reset or Stop when it has done what it woke up
	// for: a clock that is moved waits for that.
	NewTimer(d time.Duration) *Timer
	// Alarm calls f in a goroutine of its own when the clock reaches at, unless it is stopped
	// before.
	Alarm(at time.Duration, f func()) (stop func() bool)
}

// Timer is a time.Timer of a Clock. One goroutine owns it.
type Timer struct {
	C <-chan time.Time

	timer *time.Timer
	by    *Movable // nil: by Go alone
	due   time.Duration
	stuck bool // its owner took too long to wait for
}

func newTimer(d time.Duration) *Timer {
	t := time.NewTimer(d)
	return &Timer{C: t.C, timer: t}
}

// Reset is as of time.Timer.
func (t *Timer) Reset(d time.Duration) {
	if t.by != nil {
		t.by.arm(t, d)
		return
	}
	t.timer.Reset(d)
}

// Stop is as of time.Timer.
func (t *Timer) Stop() {
	if t.by != nil {
		t.by.disarm(t)
		return
	}
	t.timer.Stop()
}

// Func is a clock that is read by calling it. Its timers are Go's own.
type Func func() time.Duration

// Now calls the function.
func (now Func) Now() time.Duration { return now() }

// NewTimer is time.NewTimer.
func (Func) NewTimer(d time.Duration) *Timer { return newTimer(d) }

// alarmCheck is the interval at which an alarm reads the clock. Go's timers stand still while the
// machine sleeps, the clock may not.
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
