package client

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/internal/backoff"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/protocol"
)

// abandon undoes an attempt in the background: gives back what it got, and its place in the queue.
// With unsure, its statement may still be on its way and run after this has found nothing: so the
// session's belongings are listed afterwards, and once more with each later reconciliation. What is
// still to be answered is waited for. MUST be called within a call.
func (c *Client) abandon(s *clientSession, k *attempt, unsure bool) {
	c.undo(k, func() {
		if k.answered != nil {
			<-k.answered
		}
		c.giveBack(s, k)
		if unsure {
			s.Check()
		}
	})
}

// undo runs f in the background, after which nothing of an attempt is left. MUST be called within a
// call.
func (c *Client) undo(k *attempt, f func()) {
	done := make(chan struct{})
	c.registry.mu.Lock()
	c.registry.move(k, abandon)
	k.undone = done
	c.registry.mu.Unlock()
	c.underWay.Go(func() {
		defer close(done)
		defer c.registry.transition(k, finish)
		f()
	})
}

// giveBack tries until the attempt has nothing any more, or its session ends: no error may leave a
// name held by nobody that knows of it.
func (c *Client) giveBack(s *clientSession, k *attempt) {
	said := false
	for tries := 1; s.Context().Err() == nil && c.tidying.Err() == nil; tries++ {
		err := c.leave(s, k)
		if err == nil {
			return
		}
		wait := min(time.Duration(tries)*20*time.Millisecond, 500*time.Millisecond)
		if !c.transient(err) {
			if wait = backoff.Pause(tries, 20*time.Millisecond, c.config.TTL); !said {
				c.config.Log.Warn("dblock: giving back fails, and is tried until the session ends", "name", k.name, "error", err)
			}
			said = true
		}
		if c.closing() && (said || errors.Is(err, driver.ErrBusy) && tries > 20) {
			return // it ends with the session
		}
		pause(c.tidying, wait)
	}
}

// leave gives back once whatever an attempt has got, with few others at a time: of the
// application's pool something is to be left.
func (c *Client) leave(s *clientSession, k *attempt) error {
	select {
	case c.undoing <- struct{}{}:
		defer func() { <-c.undoing }()
	case <-c.tidying.Done():
		return c.tidying.Err()
	}
	r := protocol.Undo(s.ID, k.name, k.id)
	r.Guarded = k.guarded.Load()
	_, _, err := c.remove(c.tidying, s, r)
	return err
}

// undone waits for an attempt of this client's that is being undone, until ctx ends. False: it is
// none, or it waits for the application's transactions that it has guarded.
func (c *Client) undone(ctx context.Context, attempt string) bool {
	c.registry.mu.Lock()
	k := c.registry.attempts[attempt]
	if k == nil || k.state != Undoing || k.guarded.Load() {
		c.registry.mu.Unlock()
		return false
	}
	done := k.undone
	c.registry.mu.Unlock()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
