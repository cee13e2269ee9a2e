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
func (t *Transactions) UnlockTx(ctx context.Context, in driver.Tx, claims []*ledger.Claim) (failed string, err error) {
	for _, c := range claims {
		if err := t.inside(ctx, c, func(ctx context.Context) error { return t.unlockTx(ctx, in, c) }); err != nil {
			return c.Request.Name, err
		}
	}
	return "", nil
}

func (t *Transactions) unlockTx(ctx context.Context, in driver.Tx, c *ledger.Claim) error {
	d, done, answered, err := t.beginRelease(ctx, in, c)
	if err != nil {
		return err
	}
	defer done()
	err = in.Release(ctx, c.Held(), d, c.Grant.In.SideConn)
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

// beginRelease takes a claim from those that its owner can enter, before the statement of UnlockTx
// is sent, and keeps the mode as it is until done is called. The lock of Order keeps a further
// entry from coming between that step and the count of entries, and an Unlock from passing the lock
// to the claim behind, which the transaction would release.
func (t *Transactions) beginRelease(
	ctx context.Context, in driver.Tx, c *ledger.Claim,
) (d protocol.Detachment, done func(), answered func(err error), err error) {
	within, cancel := c.Within(ctx)
	defer cancel()
	if err := c.Grant.Order.Lock(within); err != nil {
		return d, nil, nil, err
	}
	// Before the statement is sent: Unlock must not wait for the statement past its context.
	defer c.Grant.Order.Unlock()
	if err := t.Ledger.Once(c); err != nil {
		return d, nil, nil, fmt.Errorf("%w: UnlockTx releases the last entry only", err)
	}
	done, err = t.fix(ctx, c, in)
	if err != nil {
		return d, nil, nil, err
	}
	answered, ok := t.Ledger.Promise(c)
	if !ok {
		done()
		return d, nil, nil, t.Ledger.Unusable(c)
	}
	if in.Exclusive() {
		d = t.Ledger.Detachment(c)
	}
	return d, done, answered, nil
}
