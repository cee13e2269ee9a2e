package tx

import (
	"context"
	"errors"
	"fmt"

	"github.com/dblock-go/dblock/internal/driver"
	"github.com/dblock-go/dblock/internal/ledger"
	"github.com/dblock-go/dblock/internal/protocol"
)

// UnlockTx releases locks with the commit of a transaction. With an error it returns the name that
// failed. The transaction may have released the locks before that one.
func (t *Transactions) UnlockTx(ctx context.Context, in driver.Tx, holds []*ledger.Hold) (failed string, err error) {
	for _, h := range holds {
		if err := t.inside(ctx, h, func(ctx context.Context) error { return t.unlockTx(ctx, in, h) }); err != nil {
			return h.Name, err
		}
	}
	return "", nil
}

func (t *Transactions) unlockTx(ctx context.Context, in driver.Tx, h *ledger.Hold) error {
	d, done, answered, err := t.beginRelease(ctx, in, h)
	if err != nil {
		return err
	}
	defer done()
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
// entry from coming between that step and the count of entries, and an Unlock from passing the lock
// to the member behind, which the transaction would release.
func (t *Transactions) beginRelease(
	ctx context.Context, in driver.Tx, h *ledger.Hold,
) (d protocol.Detachment, done func(), answered func(err error), err error) {
	within, cancel := h.Within(ctx)
	defer cancel()
	if err := h.Entries.Lock(within); err != nil {
		return d, nil, nil, err
	}
	defer h.Entries.Unlock() // before the statement is sent: Unlock must not wait for the statement past its context
	if err := t.Ledger.Once(h); err != nil {
		return d, nil, nil, fmt.Errorf("%w: UnlockTx releases the last entry only", err)
	}
	done, err = t.fix(ctx, h, in)
	if err != nil {
		return d, nil, nil, err
	}
	answered, ok := t.Ledger.ReleaseTx(h)
	if !ok {
		done()
		return d, nil, nil, t.Ledger.Unusable(h)
	}
	if in.Exclusive() {
		d = h.Member.SplitTx()
	}
	return d, done, answered, nil
}
