package ledger

import (
	"sync/atomic"
	"time"
)

// progress watches a claim with the option Progress. Heartbeats only show that the process lives.
type progress struct {
	every time.Duration
	last  atomic.Int64                // the latest call of Progress, by the client's clock
	stop  atomic.Pointer[func() bool] // stops the alarm
}

// due returns when the watch ends without another call of Progress.
func (p *progress) due() time.Duration { return time.Duration(p.last.Load()) + p.every }

// noted records a call of Progress.
func (p *progress) noted(now time.Duration) {
	if p != nil {
		p.last.Store(int64(now))
	}
}

// end stops the watch of a claim that has ended.
func (p *progress) end() {
	if p == nil {
		return
	}
	if stop := p.stop.Load(); stop != nil {
		(*stop)()
	}
}

// Progress records that the holder makes progress.
func (l *Ledger) Progress(c *Claim) { c.progress.Load().noted(l.config.Clock.Now()) }

// WatchProgress calls stalled once the holder has not called Progress for as long as every.
func (l *Ledger) WatchProgress(c *Claim, every time.Duration, stalled func()) {
	p := &progress{every: every}
	p.noted(l.config.Clock.Now())
	c.progress.Store(p)
	l.awaitProgress(c, p, stalled)
}

func (l *Ledger) awaitProgress(c *Claim, p *progress, stalled func()) {
	due := p.due()
	stop := l.config.Clock.Alarm(due, func() {
		switch {
		case !l.Relies(c): // after UnlockTx its transaction decides; after a rollback the watch begins anew
			p.noted(l.config.Clock.Now())
		case p.due() == due:
			stalled()
			return
		}
		l.awaitProgress(c, p, stalled)
	})
	p.stop.Store(&stop)
	if c.ctx.Err() != nil { // the claim ended meanwhile, and may have stopped the alarm before
		stop()
	}
}
