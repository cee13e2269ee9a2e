package tx

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
	"github.com/dblock-go/dblock/internal/store"
)

// UnlockTx releases locks with the commit of a transaction. With an error it returns the name that
// failed. The transaction may have released the locks before that one.
func (t *Transactions) UnlockTx(ctx context.Context, in driver.Tx, holds []*ledger.Hold) (failed string, err error) {
	for _, h := range holds {
		if err := t.inside(ctx, h, func() error { return t.unlockTx(ctx, in, h) }); err != nil {
			return h.Name, err
		}
	}
	return "", nil
}

func (t *Transactions) unlockTx(ctx context.Context, in driver.Tx, h *ledger.Hold) error {
	done, answered, err := t.beginRelease(ctx, in, h)
	if err != nil {
		return err
	}
	defer done()
	var d protocol.Detachment
	if in.Exclusive() {
		d = h.Member.SplitTx()
	}
	err = in.Release(ctx, h.Held(), d, h.In.SideConn)
	if errors.Is(err, driver.ErrGuarded) {
		err = fmt.Errorf("the lock guards another transaction that is open: end that first, or unlock after this "+
			"one: %w",
			err)
	}
	if other := t.elsewhere(ctx, in, "", err); other != nil {
		err = other
	}
	answered(err)
	return err
}

// beginRelease takes a hold from those that its owner can enter, before the statement of UnlockTx
// is sent, and keeps its mode as it is until done is called. The lock of Entries keeps a further
// entry from coming between that step and the count of entries.
func (t *Transactions) beginRelease(
	ctx context.Context, in driver.Tx, h *ledger.Hold,
) (done func(), answered func(err error), err error) {
	if err := store.LockWithin(ctx, h.Entries.TryLock); err != nil {
		return nil, nil, err
	}
	defer h.Entries.Unlock() // before the statement is sent: Unlock must not wait for the statement past its context
	if n := h.Entries.N; n > 1 {
		return nil, nil, fmt.Errorf("%w: the lock was entered %d times: UnlockTx releases the last entry only",
			driver.ErrUnsupported, n)
	}
	done, err = t.fix(ctx, h, in)
	if err != nil {
		return nil, nil, err
	}
	answered, ok := t.Ledger.ReleaseTx(h)
	if !ok {
		done()
		return nil, nil, t.Ledger.Unusable(h)
	}
	return done, answered, nil
}
