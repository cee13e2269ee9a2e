package client

import (
	"sync/atomic"
	"time"
)

// progress is the watch over a hold whose holder says that it gets on. Heartbeats say only that its
// process lives.
type progress struct {
	every time.Duration
	last  atomic.Int64                // when the holder said so, on the client's clock
	stop  atomic.Pointer[func() bool] // stops the alarm
}

// due is when the holder will have said nothing for too long.
func (p *progress) due() time.Duration { return time.Duration(p.last.Load()) + p.every }

// getsOn notes that the holder does.
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
