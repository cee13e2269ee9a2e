package orm

import (
	"context"
	"database/sql"
	"fmt"

	"gorm.io/gorm"

	"github.com/dblock-go/dblock"
)

// Gorm is an application on gorm, with PrepareStmt or without.
type Gorm struct{ DB *gorm.DB }

// Client makes a client on gorm's pool.
func (g Gorm) Client(engine Engine) (*Client, error) {
	db, err := g.DB.DB()
	if err != nil {
		return nil, err
	}
	return dblock.New(engine(db))
}

// gormTx returns the transaction below one of gorm's.
func gormTx(tx *gorm.DB) (*sql.Tx, error) {
	var below any = tx.Statement.ConnPool
	if prepared, ok := below.(*gorm.PreparedStmtTX); ok { // PrepareStmt: true
		below = prepared.Tx
	}
	if tx, ok := below.(*sql.Tx); ok {
		return tx, nil
	}
	return nil, fmt.Errorf("%T is not a transaction of database/sql", below)
}

// in is gorm in a transaction that gorm has not begun, such as that of httpidem.
func (g Gorm) in(ctx context.Context, tx *sql.Tx) *gorm.DB {
	within := g.DB.WithContext(ctx)
	within.Statement.ConnPool = tx
	return within
}

// Withdraw holds the account's lock until the transaction ends.
func (g Gorm) Withdraw(ctx context.Context, client *Client, id string, amount int64) error {
	return g.DB.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		below, err := gormTx(tx)
		if err != nil {
			return err
		}
		if err := client.LockTx(ctx, below, "account/"+id); err != nil {
			return err
		}
		var account Account
		if err := tx.First(&account, "id = ?", id).Error; err != nil {
			return err
		}
		if account.Balance < amount {
			return ErrFunds
		}
		return tx.Model(&account).Update("balance", account.Balance-amount).Error
	})
}

// SetBalance writes the result of long work done under the lock.
func (g Gorm) SetBalance(ctx context.Context, client *Client, lock *Lock, id string, balance int64) error {
	return g.DB.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		below, err := gormTx(tx)
		if err != nil {
			return err
		}
		if err := client.Guard(ctx, below, lock); err != nil {
			return err
		}
		return tx.Model(&Account{ID: id}).Update("balance", balance).Error
	})
}
