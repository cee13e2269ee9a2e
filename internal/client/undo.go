package client

import (
	"context"
	"errors"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// abandon undoes an attempt in the background: gives back what it got, and its place in the queue.
// With unsure, its statement may still be on its way and run after this has found nothing: so the
// session's belongings are listed afterwards, and once more with each later reconciliation. What is
// still to be answered is waited for. MUST be called within a call.
func (t *tables) abandon(s *clientSession, k *claim, unsure bool) {
	done := make(chan struct{})
	t.registry.mu.Lock()
	t.registry.move(k, abandon)
	k.undone = done
	t.registry.mu.Unlock()
	t.underWay.Go(func() {
		defer close(done)
		defer t.registry.transition(k, finish)
		if k.answered != nil {
			<-k.answered
		}
		for tries := 1; s.Context().Err() == nil && t.tidying.Err() == nil; tries++ {
			err := t.leave(s, k)
			if err == nil {
				break
			}
			if !transient(err) {
				t.config.Log.Warn("dblock: giving back failed", "name", k.name, "error", err)
				break
			}
			if errors.Is(err, driver.ErrBusy) && t.closing() && tries > 20 {
				break // a transaction of the application's is in the way of Close: it ends with the session
			}
			pause(t.tidying, min(time.Duration(tries)*20*time.Millisecond, 500*time.Millisecond))
		}
		if unsure {
			s.Check()
		}
	})
}

// leave gives back once whatever an attempt has got.
func (t *tables) leave(s *clientSession, k *claim) error {
	_, _, err := t.vacate(t.tidying, s, driver.Undo(s.ID, k.name, k.attempt))
	return err
}

// undone waits for an attempt of this client's that is being undone, until ctx ends. False: it is
// none.
func (t *tables) undone(ctx context.Context, attempt string) bool {
	t.registry.mu.Lock()
	k := t.registry.claims[attempt]
	if k == nil || k.state != Undoing {
		t.registry.mu.Unlock()
		return false
	}
	done := k.undone
	t.registry.mu.Unlock()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
