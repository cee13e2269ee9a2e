package ledger

import "github.com/dblock-go/dblock/internal/protocol"

// asks are the reasons with which others ask for a lock.
type asks struct {
	latest string
	to     chan string // nil: Asked was not called
}

// ask passes on the reason of an Ask to the claim that has the lock, once. MUST be called with the
// ledger's mutex locked.
func (g *Grant) ask(reason string) {
	c := g.present
	if reason = protocol.Reason(reason); reason == "" || reason == g.reason || c == nil || !c.relies() {
		return
	}
	g.reason, c.asks.latest = reason, reason
	if c.asks.to == nil {
		return
	}
	select {
	case <-c.asks.to:
	default:
	}
	c.asks.to <- reason
}

// Asked returns the channel that receives the reasons of Ask, the latest earlier one included.
func (l *Ledger) Asked(c *Claim) <-chan string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.asks.to == nil {
		c.asks.to = make(chan string, 1)
		if c.asks.latest != "" {
			c.asks.to <- c.asks.latest
		}
	}
	return c.asks.to
}
