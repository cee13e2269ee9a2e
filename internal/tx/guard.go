package tx

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/store"
)

// guardTimeout limits how long Guard waits for the lock's row, where it has to make the guard's
// row. It waits for transactions of dblock's own, and not for the application's, which may be the
// caller's own.
const guardTimeout = time.Second

// Guard lets a transaction write only while the client holds all these locks. With an error it
// returns the name that failed. It makes the guards of all locks before it uses the transaction,
// whose snapshot must show them.
func (t *Transactions) Guard(ctx context.Context, in driver.Tx, claims []*ledger.Claim) (failed string, err error) {
	proofs := make([]func(), len(claims))
	for i, c := range claims {
		if err := t.inside(ctx, c, func(ctx context.Context) (err error) {
			proofs[i], err = t.makeGuard(ctx, in, c)
			return err
		}); err != nil {
			return c.Request.Name, t.beforeCommit(c, err)
		}
	}
	for i, c := range claims {
		if err := t.inside(ctx, c, func(ctx context.Context) error { return t.guard(ctx, in, c) }); err != nil {
			return c.Request.Name, err
		}
		proofs[i]()
	}
	return "", nil
}

// beforeCommit adds to an error of Guard that the transaction in the way may be that of UnlockTx.
func (t *Transactions) beforeCommit(c *ledger.Claim, err error) error {
	if t.Ledger.Awaited(c) && errors.Is(err, driver.ErrBusy) {
		return fmt.Errorf("%w: UnlockTx was called, perhaps in the transaction that is in the way: %w",
			driver.ErrNotHeld, err)
	}
	return err
}

func (t *Transactions) guard(ctx context.Context, in driver.Tx, c *ledger.Claim) error {
	done, err := t.fix(ctx, c, in)
	if err != nil {
		return err
	}
	defer done()
	held := c.Held()
	err = in.Guard(ctx, held, c.Grant.In.SideConn)
	// The claim may have been split off since c.Held.
	if own := c.Token(); errors.Is(err, driver.ErrNotHeld) && held.Token != own {
		held.Token = own
		err = in.Guard(ctx, held, c.Grant.In.SideConn)
	}
	if other := t.elsewhere(ctx, in, "", err); other != nil {
		return other
	}
	if errors.Is(err, driver.ErrRetry) {
		c.Grant.Guardable.Store(false) // the guard's row may be gone: the next transaction makes it anew
	}
	return err
}

// makeGuard makes the row that Guard locks, unless that was made before. After UnlockTx it is made
// again: while the transaction of UnlockTx is open, makeGuard fails within a second, whereas a
// share lock would wait for that transaction. Once the lock is guarded, proven must be called: the
// transaction of UnlockTx was rolled back.
func (t *Transactions) makeGuard(ctx context.Context, in driver.Tx, c *ledger.Claim) (proven func(), err error) {
	c.Grant.Guarded.Store(true) // before the read: a release that does not see it has ended the claim
	released, proven := t.Ledger.Promised(c)
	switch {
	case !released && !t.Ledger.Relies(c):
		return nil, t.Ledger.Unusable(c)
	case !released && c.Grant.Guardable.Load():
		return proven, nil
	}
	done, err := t.fix(ctx, c, in)
	if err != nil {
		return nil, err
	}
	defer done()
	briefly := store.Briefly
	briefly.Limit = guardTimeout
	err = t.Store.Retry(ctx, briefly, func() error { return in.MakeGuard(ctx, c.Held(), c.Grant.In.SideConn) })
	switch {
	case err == nil:
		c.Grant.Guardable.Store(true)
		return proven, nil
	case ctx.Err() == nil && (errors.Is(err, driver.ErrBusy) || errors.Is(err, driver.ErrRetry)):
		err = fmt.Errorf("another transaction, or this one before Guard, has locked the lock's row for longer than "+
			"%v: %w",
			guardTimeout, err)
	}
	return nil, err
}
