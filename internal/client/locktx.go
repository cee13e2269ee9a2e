package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/driver"
)

// LockTx takes names inside a transaction, in the order given, and returns the one that failed.
func (c *Client) LockTx(ctx context.Context, names []string, shared, wait bool, tx Tx) (failed string, err error) {
	if err := c.begin(); err != nil {
		return names[0], err
	}
	defer c.done()
	for _, name := range names {
		within, told := c.tellStart(ctx, Attempt{Name: name, Wait: wait, Shared: shared})
		err := c.backing.lockTx(within, name, shared, wait, tx)
		told.end(0, err)
		if err != nil {
			return name, err
		}
	}
	return "", nil
}

// lockTx locks the name's row if no lease stands in the way; else it waits its turn for a lease of
// its own.
func (t *tables) lockTx(ctx context.Context, name string, shared, wait bool, tx Tx) error {
	if shared {
		return fmt.Errorf("%w: LockTx takes a name in a table as a whole", driver.ErrUnsupported)
	}
	for {
		state, locked, err := t.lockRow(ctx, tx, name, nil, wait)
		switch {
		case err != nil || locked:
			return err
		case !wait:
			return t.notAcquired(state, nil)
		}
		h, err := t.acquire(ctx, &driver.Request{Name: name}, t.owners.errand(ctx), true)
		if err != nil {
			return err
		}
		s := h.grip.(rows).in
		t.lend(h)
		_, locked, err = t.lockRow(ctx, tx, name, h.claim, wait)
		if locked {
			t.standBehind(s, h.claim)
			return nil
		}
		t.abandon(s, h.claim, false)
		if err != nil {
			return err
		}
	}
}

// lockRow locks the name's row. turn is the lease that was granted for it, nil for none.
func (t *tables) lockRow(ctx context.Context, tx Tx, name string, turn *claim, wait bool) (driver.State, bool, error) {
	within, cancel := untilClosed(ctx, t.background)
	defer cancel()
	mine, err := t.attemptOf(ctx, name)
	if err != nil {
		return driver.State{}, false, err
	}
	state, locked, err := tx.Lock(within, name, false, wait, t.passing(mine, turn), t.aside)
	if other := t.elsewhere(ctx, tx, state.Database, err); other != nil {
		return state, false, other
	}
	switch {
	case err == nil:
		return state, locked, nil
	case t.closing():
		return state, false, ErrClosed
	case errors.Is(err, driver.ErrRetry): // also where ctx has ended: the engine may have ended the transaction
		return state, false, err
	case ctx.Err() != nil && !wait: // it would have said so, had it seen a holder
		return state, false, t.unseen(ctx, err)
	case ctx.Err() != nil:
		return state, false, t.notAcquired(state, ended(ctx, err))
	}
	return state, false, t.explain(ctx, err)
}

// aside is a connection of the session that is alive now; of the next one, if that session ends
// meanwhile.
func (t *tables) aside(ctx context.Context, do func(ctx context.Context, up driver.Upkeep) error) error {
	for {
		var s *clientSession
		err := t.statement(ctx, func(ctx context.Context) (err error) {
			if s, err = t.sessions.open(ctx); err != nil {
				return err
			}
			return s.Aside(ctx, do)
		})
		if err == nil || s == nil || s.Alive() || ctx.Err() != nil || t.closing() {
			return err
		}
	}
}

// attemptOf is the attempt with which the owner in ctx holds a name, "" if it does not: its own
// lease is no obstacle. A share of its own would be one for ever.
func (t *tables) attemptOf(ctx context.Context, name string) (string, error) {
	o, ok := t.owners.in(ctx)
	if !ok {
		return "", nil
	}
	if mine, _ := t.registry.units(ctx, name, o); mine > 0 {
		return "", fmt.Errorf("%w: it has permits of the name: unlock first", t.selfDeadlock(o, name, 0))
	}
	h := t.registry.owned(name, o)
	if h == nil {
		return "", nil
	}
	if err := h.grip.settle(ctx, h); err != nil && !errors.Is(err, ErrLost) { // the row must show it
		return "", err
	}
	switch {
	case h.mode.Load().shared():
		return "", fmt.Errorf("%w: it has the name shared: TryUpgrade, or unlock first", t.selfDeadlock(o, name, 0))
	}
	return h.attempt, nil
}

// passing tells one LockTx which leases its transaction may pass: the one that the owner in its
// context has, the one that was granted for it, and those that stand behind this transaction
// already. A lease that stands behind another transaction of this client may be passed only while
// the name has no waiters: a transaction that comes later than a ticket must not go before it. The
// transaction that passed such a lease to wait for the row was there before any ticket that it
// meets then.
func (t *tables) passing(mine string, turn *claim) driver.Pass {
	var passed string
	return func(attempt string, waiters int, tx any) bool {
		if attempt == "" || attempt != mine && attempt != passed && !t.registry.mayPass(attempt, turn, waiters, tx) {
			return false
		}
		passed = attempt
		return true
	}
}

// mayPass notes behind which transaction a lease stands that was granted for it.
func (r *registry) mayPass(attempt string, turn *claim, waiters int, tx any) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.claims[attempt]
	if k == nil || k.state != Lent {
		return false
	}
	if k == turn {
		k.tx = tx
		return true
	}
	return waiters == 0 || k.tx == tx
}

// lend takes a lease out of what is relied upon and keeps it: nobody unlocks it, and nobody of this
// client waits for it.
func (t *tables) lend(h *hold) {
	if t.registry.take(h, lend) {
		t.end(h, fmt.Errorf("%w: it stands behind a transaction", driver.ErrNotHeld))
	}
}

// standBehind gives a lease back once the transaction that has locked its row has ended. Nobody
// tells: the row is asked for, with growing pauses, until it is free. If the client is closed or
// its session dies first, the lease ends with the session, and its next holder meets the same
// row lock.
func (t *tables) standBehind(s *clientSession, k *claim) {
	t.underWay.Go(func() {
		defer t.registry.transition(k, finish)
		for wait := time.Millisecond; s.Context().Err() == nil; wait = min(2*wait, 250*time.Millisecond) {
			pause(t.background, wait)
			if t.leave(s, k) == nil || t.closing() {
				return
			}
		}
	})
}
