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
func (t *Transactions) Guard(ctx context.Context, in driver.Tx, holds []*ledger.Hold) (failed string, err error) {
	proofs := make([]func(), len(holds))
	for i, h := range holds {
		if err := t.inside(ctx, h, func(ctx context.Context) (err error) {
			proofs[i], err = t.makeGuard(ctx, in, h)
			return err
		}); err != nil {
			return h.Name, t.beforeCommit(h, err)
		}
	}
	for i, h := range holds {
		if err := t.inside(ctx, h, func(ctx context.Context) error { return t.guard(ctx, in, h) }); err != nil {
			return h.Name, err
		}
		proofs[i]()
	}
	return "", nil
}

// beforeCommit adds to an error of Guard that the transaction in the way may be that of UnlockTx.
func (t *Transactions) beforeCommit(h *ledger.Hold, err error) error {
	if t.Ledger.StateOf(h) == ledger.AwaitingTx && errors.Is(err, driver.ErrBusy) {
		return fmt.Errorf("%w: UnlockTx was called, perhaps in the transaction that is in the way: %w",
			driver.ErrNotHeld, err)
	}
	return err
}

func (t *Transactions) guard(ctx context.Context, in driver.Tx, h *ledger.Hold) error {
	done, err := t.fix(ctx, h, in)
	if err != nil {
		return err
	}
	defer done()
	held := h.Held()
	err = in.Guard(ctx, held, h.In.SideConn)
	// The member of a cohort may have been split off since h.Held.
	if own := h.Mode.Load().Token; errors.Is(err, driver.ErrNotHeld) && held.Token != own {
		held.Token = own
		err = in.Guard(ctx, held, h.In.SideConn)
	}
	if other := t.elsewhere(ctx, in, "", err); other != nil {
		return other
	}
	if errors.Is(err, driver.ErrRetry) {
		h.Guardable.Store(false) // the guard's row may be gone: the next transaction makes it anew
	}
	return err
}

// makeGuard makes the row that Guard locks, unless that was made before. After UnlockTx it is made
// again: while the transaction of UnlockTx is open, makeGuard fails within a second, whereas a
// share lock would wait for that transaction. Once the lock is guarded, proven must be called: the
// transaction of UnlockTx was rolled back.
func (t *Transactions) makeGuard(ctx context.Context, in driver.Tx, h *ledger.Hold) (proven func(), err error) {
	h.Guarded.Store(true) // before the read: a release that does not see it has taken the hold out
	released, proven := t.Ledger.ReleasedTx(h)
	switch {
	case !released && !t.Ledger.Relies(h):
		return nil, t.Ledger.Unusable(h)
	case !released && h.Guardable.Load():
		return proven, nil
	}
	done, err := t.fix(ctx, h, in)
	if err != nil {
		return nil, err
	}
	defer done()
	briefly := store.Briefly
	briefly.Limit = guardTimeout
	err = t.Store.Retry(ctx, briefly, func() error { return in.MakeGuard(ctx, h.Held(), h.In.SideConn) })
	switch {
	case err == nil:
		h.Guardable.Store(true)
		return proven, nil
	case ctx.Err() == nil && (errors.Is(err, driver.ErrBusy) || errors.Is(err, driver.ErrRetry)):
		err = fmt.Errorf("another transaction, or this one before Guard, has locked the lock's row for longer than "+
			"%v: %w",
			guardTimeout, err)
	}
	return nil, err
}
