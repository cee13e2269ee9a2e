package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
)

// watchProgress gives a hold back that has had no progress for so long; 0: it does not watch.
func (c *Client) watchProgress(h *hold, every time.Duration) {
	if every == 0 {
		return
	}
	p := &progress{every: every}
	p.last.Store(int64(c.config.Clock.Now()))
	h.progress.Store(p)
	c.awaitProgress(h, p)
}

func (c *Client) awaitProgress(h *hold, p *progress) {
	due := p.due()
	stop := c.config.Clock.Alarm(due, func() {
		switch {
		case !c.registry.relies(h): // after UnlockTx its transaction decides; a rollback begins the watch anew
			p.getsOn(c.config.Clock.Now())
		case p.due() == due:
			c.stall(h, p.every)
			return
		}
		c.awaitProgress(h, p)
	})
	p.stop.Store(&stop)
	if h.ctx.Err() != nil { // it ended meanwhile, and may have stopped the alarm before
		stop()
	}
}

// stall ends a hold without progress, and gives it back. The holder's Unlock says ErrLost.
func (c *Client) stall(h *hold, silent time.Duration) {
	if c.store.Begin() != nil {
		return // Close gives it back
	}
	defer c.store.Done()
	cause := fmt.Errorf("dblock: %q: %w", h.name, lost(fmt.Errorf("%w for %v", contract.ErrStalled, silent)))
	if !c.drop(h, cause) {
		return
	}
	c.recordLoss(h, cause)
	c.logLoss(h)
	c.tellEnded(h, cause)
	if err := c.takeBack(h, cause); err != nil && !errors.Is(err, ErrLost) {
		c.config.Log.Warn("dblock: a lock whose holder stalled is given back later", "error", err)
	}
}
