package orm

import (
	"context"

	"github.com/jmoiron/sqlx"

	"github.com/dblock-go/dblock"
)

// Sqlx is an application on sqlx.
type Sqlx struct{ DB *sqlx.DB }

// Client makes a client on sqlx's pool.
func (s Sqlx) Client(engine Engine) (*Client, error) {
	return dblock.New(engine(s.DB.DB))
}

// Withdraw holds the account's lock until the transaction ends.
func (s Sqlx) Withdraw(ctx context.Context, client *Client, id string, amount int64) error {
	tx, err := s.DB.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := client.LockTx(ctx, tx.Tx, "account/"+id); err != nil {
		return err
	}
	var account Account
	if err := tx.GetContext(ctx, &account, tx.Rebind("SELECT id, balance FROM accounts WHERE id = ?"), id); err != nil {
		return err
	}
	if account.Balance < amount {
		return ErrFunds
	}
	if _, err := tx.ExecContext(ctx, tx.Rebind("UPDATE accounts SET balance = ? WHERE id = ?"), account.Balance-amount,
		id); err != nil {
		return err
	}
	return tx.Commit()
}

// SetBalance writes the result of long work done under the lock.
func (s Sqlx) SetBalance(ctx context.Context, client *Client, lock *Lock, id string, balance int64) error {
	tx, err := s.DB.BeginTxx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := client.Guard(ctx, tx.Tx, lock); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, tx.Rebind("UPDATE accounts SET balance = ? WHERE id = ?"), balance,
		id); err != nil {
		return err
	}
	return tx.Commit()
}
