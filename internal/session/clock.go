package session

import "time"

// Clock returns the time since some fixed moment, by a clock that goes on while the machine sleeps.
type Clock func() time.Duration

// alarmCheck is the interval at which an alarm reads the clock. Go's timers stand still while the
// machine sleeps, the clock does not.
const alarmCheck = time.Second

// Alarm calls f in a goroutine of its own when the clock reaches at, unless it is stopped before.
func (now Clock) Alarm(at time.Duration, f func()) (stop func() bool) {
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
