package client

import (
	"context"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// abandon undoes, in the background, whatever an attempt has left. MUST be called within a call.
func (c *Client) abandon(s *store.Session, k *ledger.Attempt, left store.Residue) {
	c.undo(k, func() { c.giveBack(s, k, left) })
}

// undo runs f in the background. After f nothing of the attempt is left. MUST be called within a
// call.
func (c *Client) undo(k *ledger.Attempt, f func()) {
	done := c.ledger.Undo(k)
	c.store.Go(func() {
		defer done()
		f()
	})
}

// giveBack releases the lock or the place of an attempt until that succeeds or the session ends: no
// error may leave a name held by an attempt that no caller knows of. If left is Unsure, the
// statement of the attempt may run after giveBack has found nothing: all claims of the session are
// listed afterwards.
func (c *Client) giveBack(s *store.Session, k *ledger.Attempt, left store.Residue) {
	within, cancel := contract.UntilClosed(c.store.Tidying, s.Context())
	defer cancel()
	_ = c.store.Retry(within, store.Undoing, func() error {
		err := c.leave(s, k)
		switch {
		case err == nil:
			c.givingBack.Worked()
		case !c.store.Transient(err) && within.Err() == nil:
			c.givingBack.Failed(err, "name", k.Name)
		}
		return err
	})
	if left == store.Unsure {
		s.Doubt()
	}
}

// leave releases the lock or the place of an attempt, in one try. It limits the number of
// concurrent calls, so that they leave connections of the application's pool free.
func (c *Client) leave(s *store.Session, k *ledger.Attempt) error {
	select {
	case c.undoing <- struct{}{}:
		defer func() { <-c.undoing }()
	case <-c.store.Tidying.Done():
		return c.store.Tidying.Err()
	}
	r := protocol.Undo(s.ID, k.Name, k.ID)
	r.Guarded = k.Guarded.Load()
	_, err := s.Do(c.store.Tidying, r)
	return err
}

// undone waits for an attempt of this client that is being undone, until ctx ends. It returns false
// if there is no such attempt, or if it waits for the application's transactions that it has
// guarded.
func (c *Client) undone(ctx context.Context, attempt string) bool {
	done := c.ledger.Undoing(attempt)
	if done == nil {
		return false
	}
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
