//go:build unix

package fault

import (
	"context"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/session"
)

var (
	canaryInterval = ttl / 20
	// sluggish is how long a write may take on a machine on which heartbeats, which have a fifth of
	// a TTL, can be expected to arrive.
	sluggish = ttl / 10
)

// canary writes to the database as a heartbeat does, past all proxies: when its write is slow, a
// lock may be lost without a fault in dblock.
type canary struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex // protects slow
	slow []span
}

func (w *world) canary() *canary {
	w.Helper()
	w.resource("canary")
	ctx, stop := context.WithCancel(context.Background())
	c, db := &canary{stop: stop}, w.db.SQL(w)
	c.done.Go(func() {
		for ctx.Err() == nil {
			from := session.Boottime()
			_, _ = db.ExecContext(ctx, "UPDATE resource SET n = n + 1 WHERE name = 'canary'") // an error is a connection that a fault hit
			if to := session.Boottime(); to-from > sluggish {
				c.mu.Lock()
				c.slow = append(c.slow, span{from, to})
				c.mu.Unlock()
			}
			select {
			case <-ctx.Done():
			case <-time.After(canaryInterval):
			}
		}
	})
	w.Cleanup(func() {
		stop()
		c.done.Wait()
	})
	return c
}

// choked reports whether the machine was too busy in the TTL before.
func (c *canary) choked(at time.Duration) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.slow {
		if s.from < at && at < s.to+ttl+scheduling {
			return true
		}
	}
	return false
}
