package orm

import (
	"context"
	"database/sql"

	entsql "entgo.io/ent/dialect/sql"

	"github.com/dblock-go/dblock"
)

// Ent is an application on ent. ent's generated code uses this driver; there is no generated code
// here.
type Ent struct{ Driver *entsql.Driver }

// Client makes a client on ent's pool.
func (e Ent) Client(engine Engine) (*Client, error) {
	return dblock.New(engine(e.Driver.DB()))
}

// in returns ent's driver in a transaction: the queries of ent.NewClient(ent.Driver(e.in(tx))) are
// part of it.
func (e Ent) in(tx *sql.Tx) *entsql.Driver {
	return entsql.NewDriver(e.Driver.Dialect(), entsql.Conn{ExecQuerier: tx})
}

// Withdraw holds the account's lock until the transaction ends.
func (e Ent) Withdraw(ctx context.Context, client *Client, id string, amount int64) error {
	tx, err := e.Driver.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := client.LockTx(ctx, tx, "account/"+id); err != nil {
		return err
	}
	within := e.in(tx)
	balance, err := balanceOf(ctx, within, id)
	if err != nil {
		return err
	}
	if balance < amount {
		return ErrFunds
	}
	if err := setBalance(ctx, within, id, balance-amount); err != nil {
		return err
	}
	return tx.Commit()
}

// SetBalance writes the result of long work done under the lock.
func (e Ent) SetBalance(ctx context.Context, client *Client, lock *Lock, id string, balance int64) error {
	tx, err := e.Driver.DB().BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := client.Guard(ctx, tx, lock); err != nil {
		return err
	}
	if err := setBalance(ctx, e.in(tx), id, balance); err != nil {
		return err
	}
	return tx.Commit()
}

// balanceOf and setBalance stand for generated code.
func balanceOf(ctx context.Context, within *entsql.Driver, id string) (int64, error) {
	build := entsql.Dialect(within.Dialect())
	query, args := build.Select("balance").From(build.Table("accounts")).Where(entsql.EQ("id", id)).Query()
	var rows entsql.Rows
	if err := within.Query(ctx, query, args, &rows); err != nil {
		return 0, err
	}
	defer rows.Close()
	return entsql.ScanInt64(rows)
}

func setBalance(ctx context.Context, within *entsql.Driver, id string, balance int64) error {
	query, args := entsql.Dialect(within.Dialect()).Update("accounts").Set("balance", balance).Where(entsql.EQ("id",
		id)).Query()
	return within.Exec(ctx, query, args, nil)
}
