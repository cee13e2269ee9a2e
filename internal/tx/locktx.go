package tx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/contract"
	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/store"
)

// LockTx locks the name's row in a transaction. Behind a lease it first waits for a lease of its
// own.
func (t *Transactions) LockTx(ctx context.Context, in driver.Tx, name string, wait bool) error {
	for {
		state, locked, err := t.lockRow(ctx, in, name, nil, wait)
		switch {
		case err != nil || locked:
			return err
		case !wait: // the transaction may have the last connection of the pool: a dead holder is gone the next time
			t.Store.Go(func() { t.Sessions.Sweep(t.Store.Background) })
			return t.Leases.Refuse(state, inTheWay(state))
		}
		c, err := t.Leases.Acquire(ctx, name)
		if err != nil {
			return err
		}
		t.Ledger.Lend(c)
		_, locked, err = t.lockRow(ctx, in, name, c.Grant, wait)
		if locked {
			t.standBehind(c.Grant)
			return nil
		}
		t.Ledger.Abandon(c.Grant, store.Something)
		if err != nil {
			return err
		}
		store.Pause(ctx, 10*time.Millisecond)
	}
}

var errRowLocked = errors.New("another transaction has locked the name")

// inTheWay explains why TryLockTx found a name taken about which the state says nothing; nil if the
// state says why.
func inTheWay(state driver.State) error {
	if state.Holder.Session != "" || state.Waiters > 0 || state.Rest > 0 {
		return nil
	}
	return errRowLocked
}

// lockRow locks the name's row. turn is the lease that was granted for this call, nil for none.
func (t *Transactions) lockRow(
	ctx context.Context, in driver.Tx, name string, turn *ledger.Grant, wait bool,
) (driver.State, bool, error) {
	within, cancel := contract.UntilClosed(ctx, t.Store.Background)
	defer cancel()
	mine, err := t.attemptOf(ctx, name)
	if err != nil {
		return driver.State{}, false, err
	}
	state, locked, err := in.Lock(within, name, t.passing(mine, turn), wait, t.Sessions.SideConn)
	if other := t.elsewhere(ctx, in, state.Database, err); other != nil {
		return state, false, other
	}
	switch {
	case err == nil:
		return state, locked, nil
	case t.Store.Closing():
		return state, false, contract.ErrClosed
	case errors.Is(err, driver.ErrRetry): // also after the end of ctx: the database may have ended the transaction
		return state, false, err
	case ctx.Err() != nil && !wait: // the engine would have returned a holder that it had found
		return state, false, t.Store.Unanswered(ctx, err)
	case ctx.Err() != nil:
		return state, false, t.Leases.Refuse(state, store.Ended(ctx, err))
	}
	return state, false, t.explain(ctx, err)
}

// attemptOf returns the attempt with which the owner in ctx holds a name, or "": LockTx passes the
// owner's own lease. With a share of its own the owner would wait for ever, so that is an error.
func (t *Transactions) attemptOf(ctx context.Context, name string) (string, error) {
	o, ok := t.Ledger.Owners.In(ctx)
	if !ok {
		return "", nil
	}
	if mine, _ := t.Ledger.Units(ctx, name, o); mine > 0 {
		return "", fmt.Errorf("%w: it has permits of the name: unlock first", t.Leases.SelfDeadlock(o, name))
	}
	c := t.Ledger.Owned(name, o)
	if c == nil {
		return "", nil
	}
	// The row must show the owner.
	if err := t.Ledger.Ascertain(ctx, c); err != nil && !errors.Is(err, contract.ErrLost) {
		return "", err
	}
	if c.Grant.Mode.Load().Shared() {
		return "", fmt.Errorf("%w: it has the name shared: TryUpgrade, or unlock first", t.Leases.SelfDeadlock(o, name))
	}
	return c.Grant.ID, nil
}

// passing returns the Pass of one LockTx. Its transaction may pass the lease of the owner in its
// context, the lease that was granted for it, and the leases that are kept for this transaction
// already. A lease that was passed to wait for the row may be passed again: the transaction
// predates every ticket that it finds then.
func (t *Transactions) passing(mine string, turn *ledger.Grant) driver.Pass {
	var passed string
	return func(attempt string, waiters int, tx any) bool {
		if attempt == "" || attempt != mine && attempt != passed && !t.Ledger.MayPass(attempt, turn, waiters, tx) {
			return false
		}
		passed = attempt
		return true
	}
}

// standBehind releases a lease once the transaction that has locked its row has ended. The end is
// not notified, so the release is retried until the row is free. If the client is closed or its
// session dies first, the lease ends with the session, and the next holder waits for the same row
// lock.
func (t *Transactions) standBehind(g *ledger.Grant) {
	t.Store.Go(func() {
		defer t.Ledger.Finish(g, true)
		within, cancel := contract.UntilClosed(t.Store.Background, g.In.Context())
		defer cancel()
		_ = t.Store.Retry(within, store.Behind, func() error { return t.Ledger.TryReturn(g) })
	})
}
