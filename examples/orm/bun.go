package orm

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/dblock-go/dblock"
)

// Bun is an application on bun.
type Bun struct{ DB *bun.DB }

// Client makes a client on bun's pool.
func (b Bun) Client(engine Engine) (*Client, error) {
	return dblock.New(engine(b.DB.DB))
}

// Withdraw holds the account's lock until the transaction ends.
func (b Bun) Withdraw(ctx context.Context, client *Client, id string, amount int64) error {
	return b.DB.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if err := client.LockTx(ctx, tx.Tx, "account/"+id); err != nil {
			return err
		}
		account := Account{ID: id}
		if err := tx.NewSelect().Model(&account).WherePK().Scan(ctx); err != nil {
			return err
		}
		if account.Balance < amount {
			return ErrFunds
		}
		account.Balance -= amount
		_, err := tx.NewUpdate().Model(&account).WherePK().Exec(ctx)
		return err
	})
}

// SetBalance writes the result of long work done under the lock.
func (b Bun) SetBalance(ctx context.Context, client *Client, lock *Lock, id string, balance int64) error {
	return b.DB.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if err := client.Guard(ctx, tx.Tx, lock); err != nil {
			return err
		}
		_, err := tx.NewUpdate().Model(&Account{ID: id, Balance: balance}).WherePK().Exec(ctx)
		return err
	})
}
