package orm

import (
	"context"
	"database/sql"

	"github.com/dblock-go/dblock"
)

// SQL is an application on database/sql with lib/pq. It knows PostgreSQL only.
type SQL struct{ DB *sql.DB }

// Client makes a client on the pool. With lib/pq it polls.
func (s SQL) Client(engine Engine) (*Client, error) {
	return dblock.New(engine(s.DB))
}

// Withdraw holds the account's lock until the transaction ends.
func (s SQL) Withdraw(ctx context.Context, client *Client, id string, amount int64) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := client.LockTx(ctx, tx, "account/"+id); err != nil {
		return err
	}
	var balance int64
	if err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = $1", id).Scan(&balance); err != nil {
		return err
	}
	if balance < amount {
		return ErrFunds
	}
	if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = $1 WHERE id = $2", balance-amount, id); err != nil {
		return err
	}
	return tx.Commit()
}

// SetBalance writes the result of long work done under the lock.
func (s SQL) SetBalance(ctx context.Context, client *Client, lock *Lock, id string, balance int64) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := client.Guard(ctx, tx, lock); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = $1 WHERE id = $2", balance, id); err != nil {
		return err
	}
	return tx.Commit()
}
