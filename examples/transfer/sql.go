package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dblock-go/dblock"
	"github.com/dblock-go/dblock/examples/internal/database"
)

type sqlBank struct {
	db     database.Database
	client *dblock.Client[*sql.Tx]
}

func (b sqlBank) close(ctx context.Context) error { return b.client.Close(ctx) }

// transfer reads two balances, computes, and writes: without the lock, one of two simultaneous
// transfers would be lost. LockTx comes first: at REPEATABLE READ, MySQL's default, the first
// SELECT determines the snapshot of all of them.
func (b sqlBank) transfer(ctx context.Context, from, to int, amount int64) (done bool, err error) {
	tx, err := b.db.SQL.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback() // after the commit it does nothing
	if err := b.client.LockTx(ctx, tx, account(from), account(to)); err != nil {
		return false, err
	}
	var there, here int64
	if err := tx.QueryRowContext(ctx, b.db.Bind("SELECT balance FROM "+table+" WHERE id = ?"),
		from).Scan(&there); err != nil {
		return false, err
	}
	if err := tx.QueryRowContext(ctx, b.db.Bind("SELECT balance FROM "+table+" WHERE id = ?"),
		to).Scan(&here); err != nil {
		return false, err
	}
	if there < amount || from == to {
		return false, nil
	}
	for id, balance := range map[int]int64{from: there - amount, to: here + amount} {
		if _, err := tx.ExecContext(ctx, b.db.Bind("UPDATE "+table+" SET balance = ? WHERE id = ?"), balance,
			id); err != nil {
			return false, fmt.Errorf("from %d to %d: %w", from, to, err)
		}
	}
	return true, tx.Commit()
}
