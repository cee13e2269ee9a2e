package dblock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/driver"
)

// allow refuses the options of a lock that the engine cannot keep, before any I/O.
func (c *Client[TX]) allow(config lockConfig) error {
	switch {
	case len(config.also) > 0:
		return fmt.Errorf("%w: Also is for LockTx", ErrInvalidOption)
	case config.each != nil:
		return fmt.Errorf("%w: For is for LockAll", ErrInvalidOption)
	case c.keeper != nil && (config.owner != nil || config.leased || config.metadata != nil || config.rests || config.permits):
		return fmt.Errorf("%w: Owner, Lease, MinHold, Permits and Metadata need a lock in a table", ErrUnsupported)
	}
	return nil
}

// acquireNative takes one of the server's own locks. It has no session, no queue table and no
// token: the keeper knows which waiter is next, and a holder holds it for as long as the keeper's
// connection lives. To enter again costs nothing.
func (c *Client[TX]) acquireNative(ctx context.Context, name string, o owner, shared, wait bool) (*hold, error) {
	gate := gateKey{name, o}
	if !c.gates.enter(ctx, gate, wait) {
		return nil, notAcquired(driver.State{}, ctx.Err())
	}
	defer c.gates.leave(gate)
	want := driver.Request{Name: name}
	if shared {
		want.Units, want.Of = 1, driver.Readers
	}
	if h, entered, err := c.enter(ctx, want, o); entered || err != nil {
		return h, err
	}
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.background, func() { cancel(ErrClosed) })()
	possession, got, err := c.keeper.Acquire(within, name, shared, wait)
	switch {
	case err != nil && c.background.Err() != nil:
		return nil, ErrClosed
	case err != nil && ctx.Err() != nil && errors.Is(err, ErrUnavailable): // it saw no holder
		return nil, worded{err.Error(), errors.Join(err, context.Cause(ctx))}
	case err != nil && ctx.Err() != nil && !wait: // it would have said so, had it seen a holder
		return nil, c.unseen(ctx, err)
	case err != nil && ctx.Err() != nil:
		return nil, notAcquired(driver.State{}, ended(ctx, err))
	case err != nil:
		return nil, err
	case !got:
		return nil, notAcquired(driver.State{}, nil)
	}
	h := &hold{name: name, attempt: rand.Text(), owner: o, native: possession, count: 1, asked: make(chan string, 1)}
	h.standing.Store(&standing{0, want.Units, want.Of})
	h.ctx, h.cancel = context.WithCancelCause(h.under(context.WithoutCancel(ctx), c))
	over := make(chan struct{})
	h.unwatch = func() { close(over) } // called once, by whoever takes the hold off the books
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.books.enter(h)
		c.lives.Go(func() {
			select {
			case <-possession.Lost():
				c.lose(h, possession.Cause())
			case <-over:
			}
		})
	}
	c.mu.Unlock()
	if closed { // Close gives back the keeper's connection, and this with it
		return nil, ErrClosed
	}
	return h, nil
}

// releaseNative gives back what is off the books. It may be called again: the keeper gives back
// once. MUST be called with h.mu locked.
func (c *Client[TX]) releaseNative(ctx context.Context, h *hold) error {
	err := h.native.Release(ctx)
	if errors.Is(err, driver.ErrNotHeld) {
		return lost(errors.Join(h.native.Cause(), err))
	}
	return err
}
