package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
)

// watchProgress ends a hold whose holder says nothing for so long, and gives it back; 0: it does
// not watch.
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
		if p.due() == due {
			c.stall(h, p.every)
		} else {
			c.awaitProgress(h, p)
		}
	})
	p.stop.Store(&stop)
	if h.ctx.Err() != nil { // it ended meanwhile, and may have stopped the alarm before
		stop()
	}
}

// stall takes a lock from a holder that does not get on. Its next Unlock says ErrLost.
func (c *Client) stall(h *hold, silent time.Duration) {
	if c.begin() != nil {
		return // Close gives it back
	}
	defer c.done()
	cause := fmt.Errorf("dblock: %q: %w", h.name, lost(fmt.Errorf("%w for %v", contract.ErrStalled, silent)))
	if !c.drop(h, cause) {
		return
	}
	c.logLoss(h)
	c.tellEnded(h, cause)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = 0
	if err := c.rows(h).release(c.tidying, h); err != nil && !errors.Is(err, ErrLost) {
		c.config.Log.Warn("dblock: a lock whose holder stalled is given back later", "name", h.name, "error", err)
	}
}
