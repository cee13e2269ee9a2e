package oracle

import (
	"context"
	"sync"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// hintTimeout is how late a hint may be: an engine without a wake-up polls.
const hintTimeout = 10 * time.Second

// listener is driver.Sessions, as far as it is needed.
type listener interface {
	Upkeep(ctx context.Context, session string) (driver.Upkeep, error)
}

// ear hears the hints to a session.
type ear struct {
	mu     sync.Mutex
	heard  map[string]bool // attempts since the last step
	wake   chan struct{}
	closed chan struct{}
}

// listen has a session listen, if the engine can do that.
func (c *comparison) listen(session string) {
	l, can := c.Engine.(listener)
	if !can {
		return
	}
	e := &ear{heard: map[string]bool{}, wake: make(chan struct{}, 1), closed: make(chan struct{})}
	ready := make(chan struct{})
	go func() {
		defer close(e.closed)
		up, err := l.Upkeep(c.ctx, session)
		if err != nil {
			return
		}
		defer up.Close()
		_ = up.Listen(c.ctx, session, func() { close(ready) }, func(h protocol.Hint) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.heard[h.Attempt] = true
			select {
			case e.wake <- struct{}{}:
			default:
			}
		})
	}()
	select {
	case <-ready:
		c.ears[session] = e
	case <-e.closed: // it can only be polled
	}
}

// close ends all listeners.
func (c *comparison) close(cancel func()) {
	cancel()
	for _, e := range c.ears {
		<-e.closed
	}
}

// WakesOnly is an engine that promises to wake its listeners for grants only. A wake-up for a lock
// that was broken, or is asked for, may come while the listener does something else, and is lost.
type WakesOnly struct{ driver.Backend }

// hints waits until all living sessions have heard what they are notices. What they hear beside
// that does not count: a hint may always come.
func (c *comparison) hints(notices []protocol.Notice) {
	c.Helper()
	for _, t := range notices {
		e := c.ears[t.Session]
		if _, only := c.Engine.(WakesOnly); e == nil || !c.alive[t.Session] || only && t.Hint.Grant.Token == 0 {
			continue
		}
		timeout := time.After(hintTimeout)
		for !e.has(t.Hint.Attempt) {
			select {
			case <-e.wake:
			case <-timeout:
				c.failf("%s is not notices of %s", t.Session, t.Hint.Attempt)
			}
		}
	}
	for _, e := range c.ears {
		e.mu.Lock()
		clear(e.heard)
		e.mu.Unlock()
	}
}

// has reports whether it was notices of an attempt, or of anything that it has to look up.
func (e *ear) has(attempt string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heard[attempt] || e.heard[""]
}
