package session

import "time"

// Clock tells the time since some fixed moment, on a clock that goes on while the machine sleeps.
type Clock func() time.Duration

// alarmCheck is how often an alarm looks at the clock: Go's timers stand still while the machine
// sleeps, the clock does not.
const alarmCheck = time.Second

// Alarm calls f once the clock reaches at, in a goroutine of its own, unless it is stopped before.
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
