package client

import (
	"context"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// abandon undoes an attempt in the background: it releases what the attempt got, and its place in
// the queue. If unsure is true, the statement of the attempt may be in flight, and may run after
// abandon has found nothing: the session's claims are listed afterwards, and again with each later
// reconciliation. MUST be called within a call.
func (c *Client) abandon(s *store.Session, k *attempt, unsure bool) {
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

// undo runs f in the background. After that nothing of the attempt is left. MUST be called within a
// call.
func (c *Client) undo(k *attempt, f func()) {
	done := make(chan struct{})
	c.registry.mu.Lock()
	c.registry.move(k, abandon)
	k.undone = done
	c.registry.mu.Unlock()
	c.store.Go(func() {
		defer close(done)
		defer c.registry.transition(k, finish)
		f()
	})
}

// giveBack releases what an attempt has until that succeeds or the session ends: no error may leave
// a name held by an attempt that no caller knows of.
func (c *Client) giveBack(s *store.Session, k *attempt) {
	within, cancel := contract.UntilClosed(c.store.Tidying, s.Context())
	defer cancel()
	_ = c.store.Retry(within, store.Background, func() error {
		err := c.leave(s, k)
		switch {
		case err == nil:
			c.givingBack.Worked()
		case !c.store.Transient(err) && within.Err() == nil:
			c.givingBack.Failed(err, "name", k.name)
		}
		return err
	})
}

// leave releases once whatever an attempt has got. It limits how many run at a time, so that they
// leave connections of the application's pool free.
func (c *Client) leave(s *store.Session, k *attempt) error {
	select {
	case c.undoing <- struct{}{}:
		defer func() { <-c.undoing }()
	case <-c.store.Tidying.Done():
		return c.store.Tidying.Err()
	}
	r := protocol.Undo(s.ID, k.name, k.id)
	r.Guarded = k.guarded.Load()
	_, err := s.Do(c.store.Tidying, r)
	return err
}

// undone waits for an attempt of this client that is being undone, until ctx ends. It returns false
// if the attempt is none, or waits for the application's transactions that it has guarded.
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
