package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/store"
	"github.com/dblock-go/dblock/observe"
)

// LockTx takes names inside a transaction, in the order given, and returns the one that failed.
func (c *Client) LockTx(ctx context.Context, names []string, wait bool, tx Tx) (failed string, err error) {
	if err := c.store.Begin(); err != nil {
		return names[0], err
	}
	defer c.store.Done()
	for _, name := range names {
		within, obs := c.tellStart(ctx, observe.Attempt{Name: name, Wait: wait})
		err := c.lockTx(within, name, wait, tx)
		obs.end(0, err)
		if err != nil {
			return name, err
		}
	}
	return "", nil
}

// lockTx locks the name's row if no lease stands in the way; else it waits its turn for a lease of
// its own.
func (c *Client) lockTx(ctx context.Context, name string, wait bool, tx Tx) error {
	for {
		state, locked, err := c.lockRow(ctx, tx, name, nil, wait)
		switch {
		case err != nil || locked:
			return err
		case !wait:
			return c.notAcquired(state, nil)
		}
		h, err := c.acquire(ctx, &driver.Request{Name: name}, c.owners.Private(ctx), true)
		if err != nil {
			return err
		}
		s := h.In
		c.ledger.Lend(h)
		_, locked, err = c.lockRow(ctx, tx, name, h.Attempt, wait)
		if locked {
			c.standBehind(s, h.Attempt)
			return nil
		}
		c.abandon(s, h.Attempt, false)
		if err != nil {
			return err
		}
		store.Pause(ctx, 10*time.Millisecond)
	}
}

// lockRow locks the name's row. turn is the lease that was granted for it, nil for none.
func (c *Client) lockRow(ctx context.Context, tx Tx, name string, turn *ledger.Attempt, wait bool) (driver.State, bool, error) {
	within, cancel := contract.UntilClosed(ctx, c.store.Background)
	defer cancel()
	mine, err := c.attemptOf(ctx, name)
	if err != nil {
		return driver.State{}, false, err
	}
	state, locked, err := tx.Lock(within, name, wait, c.passing(mine, turn), c.sessions.SideConn)
	if other := c.elsewhere(ctx, tx, state.Database, err); other != nil {
		return state, false, other
	}
	switch {
	case err == nil:
		return state, locked, nil
	case c.store.Closing():
		return state, false, ErrClosed
	case errors.Is(err, driver.ErrRetry): // also where ctx has ended: the engine may have ended the transaction
		return state, false, err
	case ctx.Err() != nil && !wait: // it would have said so, had it seen a holder
		return state, false, c.store.Unanswered(ctx, err)
	case ctx.Err() != nil:
		return state, false, c.notAcquired(state, store.Ended(ctx, err))
	}
	return state, false, c.store.Explain(ctx, err)
}

// attemptOf is the attempt with which the owner in ctx holds a name, "" if it does not: its own
// lease is no obstacle. A share of its own would be one for ever.
func (c *Client) attemptOf(ctx context.Context, name string) (string, error) {
	o, ok := c.owners.In(ctx)
	if !ok {
		return "", nil
	}
	if mine, _ := c.ledger.Units(ctx, name, o); mine > 0 {
		return "", fmt.Errorf("%w: it has permits of the name: unlock first", c.selfDeadlock(o, name, 0))
	}
	h := c.ledger.Owned(name, o)
	if h == nil {
		return "", nil
	}
	if err := c.settle(ctx, h); err != nil && !errors.Is(err, ErrLost) { // the row must show it
		return "", err
	}
	switch {
	case h.Mode.Load().Shared():
		return "", fmt.Errorf("%w: it has the name shared: TryUpgrade, or unlock first", c.selfDeadlock(o, name, 0))
	}
	return h.ID, nil
}

// passing tells one LockTx which leases its transaction may pass: the one that the owner in its
// context has, the one that was granted for it, and those that stand behind this transaction
// already. A lease that stands behind another transaction of this client may be passed only while
// the name has no waiters: a transaction that comes later than a ticket must not go before it. The
// transaction that passed such a lease to wait for the row was there before any ticket that it
// meets then.
func (c *Client) passing(mine string, turn *ledger.Attempt) driver.Pass {
	var passed string
	return func(attempt string, waiters int, tx any) bool {
		if attempt == "" || attempt != mine && attempt != passed && !c.ledger.MayPass(attempt, turn, waiters, tx) {
			return false
		}
		passed = attempt
		return true
	}
}

// standBehind gives a lease back once the transaction that has locked its row has ended. Nobody
// tells: the row is asked for, with growing pauses, until it is free. If the client is closed or
// its session dies first, the lease ends with the session, and its next holder meets the same
// row lock.
func (c *Client) standBehind(s *store.Session, k *ledger.Attempt) {
	c.store.Go(func() {
		defer c.ledger.Move(k, ledger.Finish)
		within, cancel := contract.UntilClosed(c.store.Background, s.Context())
		defer cancel()
		_ = c.store.Retry(within, store.Behind, func() error { return c.leave(s, k) })
	})
}
