package client

import (
	"sync/atomic"
	"time"
)

// progress is the watch over a hold with the option Progress. Heartbeats only show that the process
// lives.
type progress struct {
	every time.Duration
	last  atomic.Int64                // the latest call of Progress, on the client's clock
	stop  atomic.Pointer[func() bool] // stops the alarm
}

// due is when the next call of Progress is too late.
func (p *progress) due() time.Duration { return time.Duration(p.last.Load()) + p.every }

// getsOn notes a call of Progress.
func (p *progress) getsOn(now time.Duration) {
	if p != nil {
		p.last.Store(int64(now))
	}
}

// end ends the watch over a hold that is over.
func (p *progress) end() {
	if p == nil {
		return
	}
	if stop := p.stop.Load(); stop != nil {
		(*stop)()
	}
}
